"""Whoever is killed at whatever moment: nothing is left, nothing trains twice, the run is done."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("a standby is of Linux", allow_module_level=True)

from side_by_side import SideBySide, left_behind
from torch_stand_in import stand_in_torch

pytestmark = [pytest.mark.slow, pytest.mark.ci]
KILLS = int(os.environ.get("ROCSTEADY_TEST_KILLS", "5"))  # 200 by hand
SEED = int(os.environ.get("ROCSTEADY_TEST_SEED", "1"))
WITHIN = 60.0  # seconds
ROLES = ("attempt", "standby", "keeper", "guard", "supervisor")
TRAIN = """
    import fcntl, os, pathlib, sys, time, zipfile
    lock = open("lock", "w")
    try: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: open("twice", "w")
    from torch.optim import optimizer
    folder = pathlib.Path("checkpoints")
    folder.mkdir(exist_ok=True)
    step = int(zipfile.ZipFile(sys.argv[2]).read("step")) if sys.argv[1:] else 0
    while not os.path.exists("finish"):
        step += 1
        optimizer.step()
        if step % 20 == 0:
            with zipfile.ZipFile("part", "w") as archive: archive.writestr("step", str(step))
            os.replace("part", folder / f"step-{step}.pt")
        time.sleep(0.02)
"""
JOB = """
command = ["{python}", "train.py"]
[resume]
arguments = ["--resume", "{{checkpoint}}"]
checkpoints = ["checkpoints/*.pt"]
"""


class KilledRun:
    """A run with a standby, whose processes are killed."""

    def __init__(self, folder: Path) -> None:
        self.runs = SideBySide(folder)
        self.torch = stand_in_torch(self.runs)
        self.runs.script(TRAIN)
        (self.runs.folder / "rocsteady.toml").write_text(JOB.format(python=sys.executable))
        self.name = self.runs.watching()[-2]
        self.supervisor = self._start("--name", self.name)

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        environment = {**self.runs.environment, "PYTHONPATH": self.torch}
        with (self.runs.folder.parent / "log").open("ab") as log:
            return subprocess.Popen(
                [*self.runs.rocsteady, "run", "--yes", *options],
                cwd=self.runs.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def pids(self, role: str) -> list[int]:
        """Find the processes that are this now."""
        if role == "supervisor":
            return [self.supervisor.pid]
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if role in ("keeper", "guard"):
                    is_it = f"{role}.py".encode() in words and self.name.encode() in words
                else:
                    is_it = b"train.py" in words and self._role(entry) == role
                if is_it:
                    found.append(int(entry.name))
        return found

    def _role(self, process: Path) -> str:
        variables = dict(
            variable.split(b"=", 1)
            for variable in (process / "environ").read_bytes().split(b"\0")
            if b"=" in variable
        )
        if not variables.get(b"ROCSTEADY_RUN", b"").startswith(f"{self.name}-".encode()):
            return ""
        site = Path(os.fsdecode(variables[b"ROCSTEADY_PAGES"])).with_name("site")
        return "standby" if (site / "turn").exists() else "attempt"

    def kill(self, role: str) -> bool:
        """Kill one process of a kind; False if there is none."""
        pids = self.pids(role)
        for pid in pids[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if role == "supervisor":
            self.supervisor.wait()
            self.until(lambda: not self.living())
            self.supervisor = self._start("--resume", self.name)
        return bool(pids)

    def living(self) -> list[str]:
        """Return what is left but for what the next run removes: shared memory."""
        return [left for left in left_behind(self.name) if not left.startswith("/dev/shm")]

    def until(self, holds: object) -> None:
        assert callable(holds)
        end = time.monotonic() + WITHIN
        while not holds():
            assert time.monotonic() < end, (left_behind(self.name), self.said())
            time.sleep(0.05)

    def saved(self) -> int:
        return sum(1 for _ in self.runs.folder.glob("checkpoints/*.pt"))

    def has_saved(self, checkpoints: int) -> bool:
        return self.saved() >= checkpoints

    def said(self) -> str:
        return (self.runs.folder.parent / "log").read_text()[-3000:]

    def finish(self) -> int:
        (self.runs.folder / "finish").touch()
        return self.supervisor.wait(WITHIN)


def test_whoever_is_killed_nothing_is_left_and_nothing_trains_twice(tmp_path: Path) -> None:
    run, chance = KilledRun(tmp_path), random.Random(SEED)  # noqa: S311 - nothing is guarded by it
    try:
        for _ in range(3):
            run.until(functools.partial(run.has_saved, run.saved() + 3))
            run.kill("attempt")  # soon, so that restarts take much of the time
        turns, killed = iter(ROLES), 0
        while killed < KILLS:
            role = next(turns, "") or chance.choice(ROLES)
            if role == "attempt" or killed < len(ROLES):  # soon; one standby an attempt
                run.until(functools.partial(run.pids, role))
            time.sleep(chance.uniform(0, 2 if len(ROLES) == KILLS else 5))
            killed += run.kill(role)
            assert run.supervisor.poll() is None, run.said()
        run.until(lambda: run.pids("attempt"))

        assert run.finish() == 0
    finally:
        if run.supervisor.poll() is None:
            run.supervisor.kill()

    assert left_behind(run.name) == []
    assert not (run.runs.folder / "twice").exists()
