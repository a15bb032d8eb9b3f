"""Interrupts a training again and again, and compares it with one that was left alone.

    python tests/checkpoints/interruptions.py --python PATH-OF-A-PYTHON-WITH-TORCH

Kill -9, SIGTERM, a hang that the supervisor ends, a kill in mid-save, a loader worker that is
killed: whatever comes, the weights, the optimizer's state and the loss of every step must be the
same to the bit. The exit code says whether they are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import rocsteady_train

HERE = Path(__file__).parent
SCRIPT = HERE / "transformer.py"
HURRIED = HERE.parent / "victims" / "hurried.py"
KINDS = ("kill", "term", "mid-save", "worker", "hang")
LONGEST = 180  # seconds for a part of the training


@dataclass
class Training:
    python: str
    folder: Path
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def start(
        self, *more: str, under: tuple[str, ...] = (), variables: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / "stderr").open("ab") as complaints:
            return subprocess.Popen(
                [*under, self.python, str(SCRIPT), *self.arguments, *more],
                cwd=self.folder,
                env={**self.environment, **(variables or {})},
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                start_new_session=True,
            )

    def losses(self) -> list[tuple[int, str]]:
        """Return what was written down, with steps that were trained twice."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.folder / "losses").read_text(encoding="ascii").splitlines()
            return [(int(line.split()[0]), line.split()[1]) for line in lines if " " in line]
        return []

    def step(self) -> int:
        found = self.losses()
        return found[-1][0] if found else 0

    def interrupt(self, kind: str, chance: random.Random) -> bool:
        """Run until some steps further, and end it in this way; false if it came to its end."""
        target = self.step() + chance.randrange(4, 22)
        if kind == "hang":
            return self._hang(target)
        for marker in ("died", "hung"):
            (self.folder / marker).unlink(missing_ok=True)
        variables = {"JOB_WORKER_DIES": str(chance.randrange(100))} if kind == "worker" else {}
        child = self.start(variables=variables)
        deadline = time.monotonic() + LONGEST
        before = self.step()
        while child.poll() is None and time.monotonic() < deadline:
            if kind == "mid-save" and self.step() > before and self._is_saving():
                time.sleep(chance.random() * 0.004)
                break
            if kind in ("kill", "term") and self.step() >= target:
                time.sleep(chance.random() * 0.05)
                break
            time.sleep(0.0005 if kind == "mid-save" else 0.01)
        ended = child.poll()
        if ended is None:
            number = signal.SIGTERM if kind == "term" else signal.SIGKILL
            os.kill(child.pid, number)
            child.wait(timeout=LONGEST)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # loader workers
        return ended != 0

    def _is_saving(self) -> bool:
        return any((self.folder / "checkpoints").glob("unfinished-*"))

    def _hang(self, target: int) -> bool:
        (self.folder / "hung").unlink(missing_ok=True)
        watch = (sys.executable, str(HURRIED), "run", "--max-attempts", "1", "--")
        child = self.start("--hang-at", str(target + 14), under=watch)
        return child.wait(timeout=LONGEST) != 0


def compare(python: str, *, seed: int, interruptions: int, epochs: int) -> tuple[str, Counter[str]]:
    """Return what differs, and how often the training was interrupted in which way."""
    root = Path(tempfile.mkdtemp(prefix="rocsteady-bitwise-"))
    paths = {**os.environ, "PYTHONPATH": str(Path(rocsteady_train.__file__).parents[1])}
    arguments = ["--seed", str(seed), "--epochs", str(epochs)]
    alone, disturbed = root / "alone", root / "disturbed"
    for folder in (alone, disturbed):
        folder.mkdir()
    try:
        left_alone = Training(python, alone, [*arguments, "--save-every", "1e9"], paths)
        if left_alone.start().wait(timeout=LONGEST) != 0:
            return (alone / "stderr").read_text(), Counter()
        training = Training(python, disturbed, arguments, {**paths, "HOME": str(disturbed)})
        chance = random.Random(seed)  # noqa: S311 - not for secrets
        kinds = [KINDS[number % len(KINDS)] for number in range(interruptions)]
        chance.shuffle(kinds)
        done: Counter[str] = Counter()
        for kind in kinds:
            if not training.interrupt(kind, chance):
                break
            done[kind] += 1
        (disturbed / "hung").touch()
        while training.start().wait(timeout=LONGEST) != 0:
            done["went wrong by itself"] += 1
            if done["went wrong by itself"] > 3:
                return (disturbed / "stderr").read_text()[-4000:], done
        return _difference(left_alone, training), done
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _difference(alone: Training, disturbed: Training) -> str:
    wanted = json.loads((alone.folder / "end.json").read_text())
    found = json.loads((disturbed.folder / "end.json").read_text())
    for name, value in wanted.items():
        if found[name] != value:
            return f"{name}: {value} alone, {found[name]} disturbed"
    steps = dict(alone.losses())
    for step, loss in disturbed.losses():
        if steps[step] != loss:
            return f"the loss of step {step}: {steps[step]} alone, {loss} disturbed"
    missing = steps.keys() - dict(disturbed.losses()).keys()
    return f"steps were left out: {sorted(missing)[:5]}" if missing else ""


def main() -> None:
    """Compare with each seed, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--interruptions", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=8, help="of 100 steps")
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.seeds):
        began = time.monotonic()
        difference, done = compare(
            arguments.python,
            seed=seed,
            interruptions=arguments.interruptions,
            epochs=arguments.epochs,
        )
        failed += bool(difference)
        ways = ", ".join(f"{count} {kind}" for kind, count in sorted(done.items()))
        print(f"seed {seed}: {100 * arguments.epochs} steps, {done.total()} interruptions ({ways})")
        print(
            f"    {difference or 'the same to the bit'}; {time.monotonic() - began:.0f} s",
            flush=True,
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
