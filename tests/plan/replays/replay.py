"""A field note as a folder: recorded machine, a script of the same kind, its fault, and plans."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
from supervised import Project, until

from rocsteady.model import Strategy
from rocsteady.plan.values import Option, Plan

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MACHINES = ROOT / "tests" / "machines"
USERS_OWN = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "SHELL", "USER", "VIRTUAL_ENV")
STEPS = 5  # after which a run that follows a plan is seen to get on
RESUMES = """
[resume]
arguments = ["--resume", "{checkpoint}"]
checkpoints = ["output/checkpoints/*.pt"]
"""


class Replay:
    """A job of a field note on its machine, and the plans that are made for it."""

    def __init__(self, project: Project, python: str) -> None:
        self.project, self._python = project, python
        self.folder, self.state = project.folder, project.home / ".local/state/rocsteady"
        self._trials = project.home / "trials.json"
        self._command: list[str] = []

    def lay_out(self, example: str, fault: str, *arguments: str) -> None:
        """Copy an example into the project, with something wrong below it."""
        shutil.copytree(ROOT / "examples" / example, self.folder, dirs_exist_ok=True)
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)
        shutil.copy(HERE / "faulty.py", self.folder)
        self._command = [self._python, "faulty.py", fault, "train.py", *arguments]

    def make_data(self, *arguments: str) -> None:
        """Make what the example learns from."""
        made = [self._python, "make_data.py", *arguments]
        subprocess.run(
            made, cwd=self.folder, env=self.project.environment, check=True, capture_output=True
        )

    def lead(self, script: list[str], *, library: bool = False) -> None:
        """Run a script of the project, with rocsteady installed beside torch if asked for."""
        self._command = [self._python, *script]
        if library:
            self.project.environment["PYTHONPATH"] += (
                f":{ROOT / 'packages' / 'rocsteady_train' / 'src'}"
            )

    def job(self, text: str, *, resumes: bool = True) -> None:
        """Write the job file."""
        said = f"command = {json.dumps(self._command)}\n{text}{RESUMES if resumes else ''}"
        (self.folder / "rocsteady.toml").write_text(said)

    def on(self, machine: str | Path, *, variables: bool = True) -> None:
        """Be on a machine that was recorded, with the variables that were in force there."""
        path = MACHINES / f"{machine}.json" if isinstance(machine, str) else machine
        program = (HERE / "plan_elsewhere.py", path, self._trials)
        self.project.program = (sys.executable, *map(str, program))
        there = json.loads(path.read_text())["environment"] if variables else {}
        self.project.environment |= {
            **{name: there[name] for name in there if name not in USERS_OWN},
            "PYTHONPATH": str(ROOT / "tests" / "victims"),
            "OMP_NUM_THREADS": "1",  # two threads on one busy core wait for each other
            "COLUMNS": "80",
        }

    def plan(self, *options: str) -> str:
        """Make a plan by real trials, none of which is made twice; return the screen."""
        before = hashed(self.folder)
        trial = () if "--no-trials" in options else ("--trial", "2s")
        ended = self.project.say("plan", "--yes", *trial, *options, within=280)
        print(ended.out)  # noqa: T201 - seen if the test fails
        assert ended.code == 0, ended.err
        assert hashed(self.folder) == before
        return ended.out

    def values(self, *options: str) -> Plan:
        """Return the plan as values, from the same trials."""
        return msgspec.json.decode(self.plan("--json", *options), type=Plan)

    def follow(self, option: Option) -> None:
        """Run a row of the plan until it gets on, and stop it as a person does."""
        child = self.project.start("--plan", str(option.number))
        until(lambda: (self.project.line().get("step") or 0) >= STEPS or child.poll() is not None)
        child.send_signal(signal.SIGINT)
        ended = self.project.ended(child)
        assert ended.code == 130, ended.err
        story = self.project.story()
        (attempt,) = story["attempts"]
        assert story["failures"] == []
        assert msgspec.convert(attempt["strategy"], Strategy) == option.strategy
        assert attempt["last_step"] >= STEPS


def hashed(folder: Path) -> dict[str, str]:
    """Return what stands in a folder; databases are opened to be read, and so are left out."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".db-wal", ".db-shm")
    }


def named(options: tuple[Option, ...], name: str) -> Option:
    """Return an option by its id."""
    return next(option for option in options if option.id == name)
