"""Variants and stages: the same script with other arguments, as jobs of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from rocsteady.errors import JobError
from rocsteady.model import Deadline, RunOutcome, Strategy
from rocsteady.run.job.stages import for_command, stage_job, variant_command, with_variant
from rocsteady.run.job.values import DoneWhen, Job, Stage, Total, Variant
from rocsteady.run.stages import Turn, survey
from rocsteady.store.values import Run

SMALL = Variant(arguments=("--dim", "128"), without=("--val",), total=Total(steps=50))
JOB = Job(
    command=("python", "t.py", "--dim", "256", "--val"),
    name="calm-otter",
    total=Total(steps=100),
    deadline=Deadline(within=timedelta(hours=2)),
    budget=25.0,
    variants={"small": SMALL, "tiny": Variant(arguments=("--dim=8",))},
    stages=(
        Stage(name="smoke", arguments=("--part", "0.05"), variant="small", total=Total(steps=5)),
        Stage(name="full", deadline=Deadline(within=timedelta(hours=1))),
        Stage(name="gpus", arguments=("--gpus", "2"), done_when=DoneWhen(gpus_busy=2)),
    ),
)


def run_of(job: Job, name: str, started: float) -> Run:
    return Run(
        id=1,
        name=name,
        command=job.command,
        job={},
        strategy=Strategy(),
        folder="",
        machine="",
        boot_id="",
        process="",
        started=started,
        ended=started + 60,
        outcome=RunOutcome.DONE,
    )


def test_a_variant_has_its_own_command_and_total() -> None:
    assert variant_command(JOB, "small") == ("python", "t.py", "--dim", "128")
    assert with_variant(JOB, "small").total == Total(steps=50)
    assert with_variant(JOB, "tiny") == replace(JOB, command=("python", "t.py", "--dim=8", "--val"))
    with pytest.raises(JobError, match=r"no variant 'big'; there are: small, tiny"):
        with_variant(JOB, "big")
    with pytest.raises(JobError, match=r"variants.small: the command has no --val"):
        with_variant(replace(JOB, command=("python", "other.py")), "small")


@pytest.mark.parametrize(
    "python", ["python3", "/home/me/venv/bin/python3.12", r"C:\venv\python.exe"]
)
def test_another_interpreter_does_the_same_work_by_the_same_time(python: str) -> None:
    command = (python, *JOB.command[1:])

    assert for_command(JOB, command) == (replace(JOB, command=command, stages=()), ("stages",))
    assert for_command(JOB, ("node", *JOB.command[1:]))[1] == ("total", "deadline", "stages")


def test_a_stage_is_a_job_of_its_own_and_else_as_the_job_says() -> None:
    smoke, full, gpus = (stage_job(JOB, stage) for stage in JOB.stages)
    plain = replace(JOB, variants={}, stages=())

    assert smoke == replace(
        plain,
        name="calm-otter-smoke",
        command=("python", "t.py", "--dim", "128", "--part", "0.05"),
        total=Total(steps=5),
    )
    assert full == replace(
        plain, name="calm-otter-full", deadline=Deadline(within=timedelta(hours=1))
    )
    assert gpus == replace(
        plain,
        name="calm-otter-gpus",
        command=(*JOB.command, "--gpus", "2"),
        done_when=DoneWhen(gpus_busy=2),
    )


def test_a_stage_is_done_by_a_run_of_its_name_with_the_same_command() -> None:
    smoke, full, gpus = (stage_job(JOB, stage) for stage in JOB.stages)
    runs = [
        run_of(gpus, "calm-otter-gpus", 4000.0),
        run_of(full, "other-full", 3000.0),
        run_of(smoke, "calm-otter-full", 2500.0),
        run_of(smoke, "calm-otter-smoke-2", 2000.0),
    ]
    due = Deadline(at=datetime.fromtimestamp(2000.0 + 7200, tz=UTC))

    assert survey(JOB, runs) == (
        Turn(
            number=1,
            of=3,
            name="smoke",
            job=replace(smoke, deadline=due),
            done_by="calm-otter-smoke-2",
        ),
        Turn(number=2, of=3, name="full", job=full),
        Turn(
            number=3, of=3, name="gpus", job=replace(gpus, deadline=due), done_by="calm-otter-gpus"
        ),
    )
