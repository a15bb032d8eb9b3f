"""The four jobs are rehearsed: five faults in each, and a project that stays as it was."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from supervised import Project

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
HURRIED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "victims")!r})
import hurried
from rocsteady.probe import drill as drills
hurried.hurry(drills)
hurried.main()
"""
KINDS = ("hang:backward", "oom", "kill", "segv", "nan")
CALLED = ("hang-in-backward", "oom-device", "killed", "segfault", "nan-loss")
DONE = (
    "retried without changes",
    "fresh-process",
    "retried without changes",
    "retried without changes",
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One example at a size that is quick."""

    name: str
    data: tuple[str, ...]  # arguments of make_data.py; none: the job makes its own
    small: tuple[str, ...]  # arguments of train.py
    steps: tuple[int, ...]  # of the faults; the first checkpoint comes before them
    ends_by_nan: bool = False  # it fails of a NaN, and so goes on from before it


JOBS = (
    Job(
        name="detector",
        data=("--train", "400"),
        small=(
            *("--images", "400", "--epochs", "8", "--batch_size", "8", "--width", "4"),
            *("--checkpoint_every", "10", "--workers", "1"),
        ),
        steps=(30, 60, 90, 120, 150),
    ),
    Job(
        name="futures",
        data=("--rows", "200000", "--output", "ticks.csv"),
        small=(
            *("--folds", "4", "--batch_size", "128", "--epochs", "4"),
            *("--hidden_layers", "256,128", "--checkpoint_every", "50"),
        ),
        steps=(150, 350, 550, 750, 950),
    ),
    Job(
        name="eeg",
        data=("--preset", "small"),
        small=("--preset", "small", "--checkpoint_every", "10"),
        steps=(40, 80, 120, 160, 200),
    ),
    Job(
        name="predator_prey",
        data=(),
        small=(
            *("--embedding", "32", "--heads", "2", "--hidden", "64", "--checkpoint_every", "5"),
            *("--episode_length", "8", "--prey", "4", "--predators", "3"),
        ),
        steps=(12, 24, 36, 48, 60),
        ends_by_nan=True,  # actions are drawn from probabilities, and torch checks these
    ),
)


def hashed(folder: Path) -> str:
    """Return a hash of every name and every byte below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(os.fsencode(path))
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_five_faults_are_seen_and_what_can_be_survived_is(
    job: Job, project: Project, torch_python: str
) -> None:
    shutil.copytree(EXAMPLES / job.name, project.folder, dirs_exist_ok=True)
    project.program = (sys.executable, "-c", HURRIED)
    project.environment["OMP_NUM_THREADS"] = "1"  # tests run two at a time
    if job.data:
        words = (torch_python, "make_data.py", *job.data)
        subprocess.run(words, cwd=project.folder, env=project.environment, check=True)
    before = hashed(project.folder)
    faults = ",".join(f"{kind}@{at}" for kind, at in zip(KINDS, job.steps, strict=True))

    ended = project.say(
        *("drill", "--yes", "--json", "--faults", faults),
        *("--", torch_python, "train.py", *job.small),
        within=280,
    )

    told = json.loads(ended.out)
    *others, nan = seen = told["faults"]
    assert hashed(project.folder) == before
    assert told["changed"] == []
    assert tuple(fault["called"] for fault in seen) == CALLED, ended.err
    assert tuple(fault["done"] for fault in others) == DONE
    assert all(fault["survived"] for fault in others), others
    assert all(0 < fault["went_on_from"] <= fault["step"] for fault in others), others
    # None of these scripts looks at its loss: the drill says that this was not survived.
    went_on = "retried without changes" if job.ends_by_nan else "the script continued"
    assert (nan["done"], nan["survived"]) == (went_on, job.ends_by_nan)
    assert (ended.code, told["survived"]) == (0 if job.ends_by_nan else 1, job.ends_by_nan)
