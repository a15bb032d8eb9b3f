"""What ``watch --pid`` says of stuck processes started without rocsteady, and what it costs one.

    python benchmarks/plain_process.py --python PATH-OF-A-PYTHON-WITH-TORCH [--all] [--rounds 8]

Stuck: scripts of the third corpus, whose right lines are marked in it. Cost: a training that notes
the time of each step, first left alone, then in turn inspected once and left alone for as long.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[1] / "tests" / "victims" / "third"
CHOSEN = (
    "lock_order", "condition_lost", "queue_dead_feeder", "queue_full", "socketpair_to_self",
    "mp_join_before_get", "child_deadlock", "loader_lock_across_fork", "loader_mp_lock",
    "backward_hook", "gloo_rank_in_lock", "gloo_both_receive",
)  # fmt: skip
WARM = 10_000  # bytes of notes, after which it is measured
STILL = 2.0  # seconds without a step, after which it is at its line
STARTS_WITHIN = 120.0  # seconds
TRAINING = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
with open(sys.argv[1], "w", buffering=1) as notes:
    while True:
        began = time.monotonic()
        loss = model(torch.randn(256, 256)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        notes.write(f"{began} {time.monotonic() - began}\\n")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--all", action="store_true", help="every closed wait of the corpus")
    parser.add_argument("--only-cost", action="store_true", help="start nothing that hangs")
    parser.add_argument("--rounds", type=int, default=8, help="inspections of the training")
    wanted = parser.parse_args()
    chosen = () if wanted.only_cost else names(wanted.python, every=wanted.all)
    right = [look(wanted.python, name) for name in chosen]
    print(f"stuck, at the right line: {sum(right)} of {len(right)}; load {os.getloadavg()[0]:.1f}")
    if wanted.rounds:
        measure(wanted.python, wanted.rounds)
    return 0 if all(right) else 1


def names(python: str, *, every: bool) -> tuple[str, ...]:
    if not every:
        return CHOSEN
    code = "import hangs as h; print(*(n for n, c in h.CASES.items() if c['kind'] == 'closed'))"
    return tuple(subprocess.check_output([python, "-c", code], cwd=CORPUS, text=True).split())


def look(python: str, name: str) -> bool:
    """Start a script, inspect it when it makes no more steps; true if all is as it should be."""
    marks = [
        f"{path.name}:{number}"
        for path in CORPUS.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith(f"# HANGS HERE: {name}")
    ]
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder, "steps")
        steps.mkdir()
        command = [python, str(CORPUS / "hangs.py"), name]
        with started(command, Path(folder), THIRD_STEPS=str(steps)) as process:
            until_still(steps)
            found, took = inspected(process.pid)
    good = found["state"] == "stuck" and found["place"].split()[0] in marks
    print(
        f"{name:<26} {'ok' if good else 'WRONG':<6} {found['state']:<8} {found['place']:<40}"
        f" inspection {found['seconds']:.1f} s, command {took:.1f} s",
        flush=True,
    )
    return good


@contextmanager
def started(command: list[str], folder: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**bare, **more},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until_still(steps: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline:
        newest = max((path.stat().st_mtime for path in steps.iterdir()), default=time.time())
        if time.time() - newest > STILL:
            return
        time.sleep(0.2)
    raise SystemExit("it made no step, or did not come to rest")


def inspected(pid: int) -> tuple[dict[str, Any], float]:
    began = time.monotonic()
    command = [sys.executable, "-m", "rocsteady", "watch", "--pid", str(pid), "--json"]
    output = subprocess.run(command, capture_output=True, check=False).stdout
    return json.loads(output), time.monotonic() - began


def measure(python: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "steps")
        with started([python, "-c", TRAINING, str(notes)], Path(folder)) as process:
            while not notes.exists() or notes.stat().st_size < WARM:
                time.sleep(0.2)
            spans: list[tuple[str, float, float]] = []
            spent = 5.0
            for number in range(rounds):
                began = time.monotonic()
                time.sleep(spent)
                middle = time.monotonic()
                inspected(process.pid)
                ended = time.monotonic()
                spent = ended - middle
                spans += [
                    ("after" if number else "before", began, middle),
                    ("during", middle, ended),
                ]
            began = time.monotonic()
            time.sleep(spent)
            spans.append(("after", began, time.monotonic()))
        lines = [line.split() for line in notes.read_text().splitlines()]
    steps = [(float(line[0]), float(line[1])) for line in lines if len(line) > 1]
    for which in ("before", "during", "after"):
        blocks = [
            [took for at, took in steps if begin <= at < end]
            for each, begin, end in spans
            if each == which
        ]
        middles = [1e3 * statistics.median(block) for block in blocks]
        means = [1e3 * statistics.mean(block) for block in blocks]
        longest = [max(block) for block in blocks]
        print(
            f"{which:<7} {len(blocks)} times, {sum(map(len, blocks))} steps: median"
            f" {statistics.median(middles):.2f} ms ({min(middles):.2f} to {max(middles):.2f}),"
            f" mean {statistics.mean(means):.2f} ms ({min(means):.2f} to {max(means):.2f}),"
            f" longest {1e3 * statistics.median(longest):.0f} ms ({1e3 * max(longest):.0f} at most)"
        )


if __name__ == "__main__":
    raise SystemExit(main())
