"""The runs of the five field notes, made with the jobs in ``examples/`` and a fault in each.

On a machine without a GPU: what the notes' GPUs did is brought about by the faults of a drill, by
an error that is raised, and by killing everything and calling it another boot.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
WITHIN = 900.0  # seconds for one run
BLAS = """
import pathlib
from torch.optim.optimizer import register_optimizer_step_pre_hook
def _fail(*_, count=[0]):
    count[0] += 1
    mark = pathlib.Path("failed")
    if count[0] == 60 and not mark.exists():
        mark.touch()
        raise RuntimeError("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`")
register_optimizer_step_pre_hook(_fail)
"""  # noqa: E501 - as torch words it


@dataclass(frozen=True, kw_only=True)
class Story:
    """One note, as a run of an example."""

    name: str  # of the run
    example: str
    data: tuple[str, ...] = ()  # arguments of make_data.py; none: the job makes its own
    small: tuple[str, ...] = ()  # arguments of train.py
    faults: tuple[tuple[str, str, int], ...] = ()  # kind, place, step
    before: str = ""  # put at the top of train.py
    goes_down: bool = False  # the machine


FUTURES = ("--folds", "2", "--batch_size", "128", "--epochs", "2", "--hidden_layers", "256,128",
           "--checkpoint_every", "50")  # fmt: skip
STORIES = (
    Story(
        name="note-a-backward", example="predator_prey",
        small=("--episodes", "120", "--checkpoint_every", "10", "--embedding", "32",
               "--hidden", "64", "--heads", "2", "--prey", "4",
               "--predators", "3", "--episode_length", "10"),
        faults=(("hang", "backward", 60),),
    ),
    Story(
        name="note-b-hipblas", example="futures", data=("--rows", "60000", "--output", "ticks.csv"),
        small=FUTURES, before=BLAS,
    ),
    Story(
        name="note-c-loader", example="detector", data=("--train", "400"),
        small=("--images", "400", "--epochs", "4", "--batch_size", "8", "--width", "4",
               "--checkpoint_every", "10", "--workers", "1"),
        faults=(("hang", "loader", 60), ("hang", "loader", 80)),
    ),
    Story(
        name="note-d-memory", example="futures", data=("--rows", "60000", "--output", "ticks.csv"),
        small=FUTURES, faults=(("oom", "step", 130), ("oom", "step", 90)),
    ),
    Story(
        name="note-e-machine", example="eeg", data=("--preset", "small"),
        small=("--preset", "small", "--checkpoint_every", "10"),
        goes_down=True,
    ),
)  # fmt: skip


def prepare(story: Story, folder: Path, python: Path) -> dict[str, str]:
    """Lay out the project of a story, and return the variables of its run."""
    shutil.copytree(EXAMPLES / story.example, folder)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    if story.data:
        making = [str(python), "make_data.py", *story.data]
        subprocess.run(making, cwd=folder, env=variables, check=True, stdout=subprocess.DEVNULL)
    script = folder / "train.py"
    if story.before:
        docstring, _, rest = script.read_text().partition('"""\n')
        script.write_text(f'{docstring}"""\n{story.before}{rest}' if rest else story.before)
    job = folder / "rocsteady.toml"
    text = job.read_text().partition("[[stages]]")[0]
    text = text.replace('"train.py"]', f'"train.py", {json.dumps(story.small)[1:-1]}]')
    lines = (line for line in text.splitlines() if not line.startswith("total"))
    job.write_text("\n".join(lines) + "\n")
    marks = folder / ".faults"
    marks.mkdir()
    faults = [{"kind": kind, "place": place, "at": at} for kind, place, at in story.faults]
    told = {"version": 1, "before": 0, "folder": str(marks), "faults": faults}
    return {**variables, "ROCSTEADY_FAULTS": json.dumps(told)} if faults else variables


def rocsteady(folder: Path, variables: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    """Start a command of rocsteady."""
    command = [sys.executable, "-m", "rocsteady", *words]
    with said_by(folder).open("ab") as said:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )


def said_by(folder: Path) -> Path:
    """Return the file of what the runs of a project print: beside it, not in it."""
    return folder.with_name(f"{folder.name}.txt")


def carry_out(story: Story, folder: Path, python: Path) -> None:
    """Run a story to its end."""
    variables = prepare(story, folder, python)
    run = rocsteady(folder, variables, "run", "--yes", "--name", story.name)
    if story.goes_down:
        until_step(story.name, folder, variables, 60)
        go_down(run, folder)
        run = rocsteady(folder, variables, "run", "--yes", "--resume", story.name)
    run.wait(WITHIN)


def until_step(name: str, folder: Path, variables: dict[str, str], step: int) -> None:
    """Wait until a run has made so many steps."""
    end = time.monotonic() + WITHIN
    while time.monotonic() < end:
        listed = rocsteady_json(folder, variables, "status", "--json")
        lines = [line for line in listed.get("runs", ()) if line["run"]["name"] == name]
        if lines and (lines[0]["step"] or 0) >= step:
            return
        time.sleep(1.0)
    raise TimeoutError(name)


def rocsteady_json(folder: Path, variables: dict[str, str], *words: str) -> dict[str, list[dict]]:
    """Return what a command prints as JSON; nothing if it has nothing to say."""
    command: Sequence[str] = [sys.executable, "-m", "rocsteady", *words]
    said = subprocess.run(command, cwd=folder, env=variables, capture_output=True, check=False)
    return json.loads(said.stdout) if said.stdout else {}


def go_down(run: subprocess.Popen[bytes], folder: Path) -> None:
    """Do what a crash of the machine does: all processes end, and the next boot is another one."""
    run.send_signal(signal.SIGKILL)
    run.wait()
    time.sleep(15)  # until its keeper has ended the training
    with closing(sqlite3.connect(folder / ".rocsteady" / "journal.db")) as journal, journal:
        for table in ("runs", "attempts", "intents"):
            journal.execute(f"UPDATE {table} SET boot_id = 'the boot before'")  # noqa: S608
