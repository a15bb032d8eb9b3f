"""What a new run does about checkpoints that it did not write."""

from __future__ import annotations

import zipfile
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from rocsteady.errors import RocsteadyError
from rocsteady.model import RunOutcome, Strategy
from rocsteady.run.checkpoints.existing_checkpoints import Choice, choose
from rocsteady.run.checkpoints.resume import Origin, find_checkpoints
from rocsteady.run.job.values import Existing, Job, Resume
from rocsteady.screens.job_questions import ask_existing
from rocsteady.store.account_records import keep
from rocsteady.store.values import Run, RunLine

RESUME = Resume(arguments=("--resume", "{checkpoint}"), checkpoints=("*.pt",))
JOB = Job(command=("python", "train.py"), resume=RESUME)
CONTINUES, IGNORES = "continuing", "ignoring"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "last.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"x")
    return tmp_path


def line(
    folder: Path,
    outcome: RunOutcome = RunOutcome.NONE,
    *,
    command: tuple[str, ...] = JOB.command,
    attempts: int = 1,
) -> RunLine:
    run = Run(
        id=1, name="calm-otter", command=command, job={}, strategy=Strategy(), folder=str(folder),
        machine="", boot_id="", process="", started=0.0, ended=1.0, outcome=outcome,
    )  # fmt: skip
    return RunLine(
        run=run, alive=False, attempts=attempts, incidents=0, step=1, total=1, rate=None,
        last_progress=None, seconds_left=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "option", "expected"),
    [
        (None, None, IGNORES),
        (Existing.CONTINUE, None, CONTINUES),
        (Existing.FRESH, None, IGNORES),
        (Existing.REFUSE, Existing.CONTINUE, CONTINUES),
        (Existing.CONTINUE, Existing.FRESH, IGNORES),
    ],
)
def test_the_job_file_or_an_option_decides(
    folder: Path, key: Existing | None, option: Existing | None, expected: str
) -> None:
    job = replace(JOB, resume=replace(RESUME, existing=key))

    origin, said, _ = choose(job, folder, [line(folder, RunOutcome.DONE)], Choice(existing=option))

    assert expected in said
    assert origin.foreign == (
        find_checkpoints(RESUME, folder) if expected == IGNORES else frozenset()
    )
    assert origin.before == find_checkpoints(RESUME, folder)


def test_refusing_says_what_to_type(folder: Path) -> None:
    job = replace(JOB, resume=replace(RESUME, existing=Existing.REFUSE))

    with pytest.raises(
        RocsteadyError, match="Use --resume auto to continue from them, or --resume never"
    ):
        choose(job, folder, [], Choice())
    _, said, _ = choose(job, folder, [], Choice(typed=True))
    assert "the command runs as typed" in said


@pytest.mark.parametrize(
    ("outcome", "more", "expected"),
    [
        (RunOutcome.STOPPED, {}, CONTINUES),
        (RunOutcome.NOT_DONE, {}, CONTINUES),
        (RunOutcome.NONE, {}, CONTINUES),
        (RunOutcome.DONE, {}, IGNORES),
        (RunOutcome.NOT_STARTED, {}, IGNORES),
        (RunOutcome.STOPPED, {"attempts": 0}, IGNORES),
        (RunOutcome.STOPPED, {"command": ("python", "train.py", "--small")}, IGNORES),
    ],
)
def test_only_what_the_last_run_of_this_job_left_is_continued(
    folder: Path, outcome: RunOutcome, more: dict[str, object], expected: str
) -> None:
    _, said, _ = choose(JOB, folder, [line(folder, outcome, **more)], Choice())  # type: ignore[arg-type]

    assert expected in said


def test_what_the_last_run_must_not_use_its_successor_must_not_either(folder: Path) -> None:
    before = find_checkpoints(RESUME, folder)
    keep(Origin(before=before, foreign=before), folder)

    origin, _, _ = choose(JOB, folder, [line(folder)], Choice())

    assert origin.foreign == before


def test_without_checkpoints_nothing_is_asked_or_said(tmp_path: Path) -> None:
    _, said, choice = choose(JOB, tmp_path, [line(tmp_path)], Choice(ask=ask_existing))

    assert (said, choice) == ("", Choice(ask=ask_existing))


def test_a_person_is_asked_unless_the_job_file_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prompt(*_: object, default: str, **__: object) -> str:
        asked.append(default)
        return answers.pop(0)

    monkeypatch.setattr(click, "prompt", prompt)
    asked: list[str] = []
    answers = ["fresh", "continue", "quit"]
    said = [choose(JOB, folder, [line(folder)], Choice(ask=ask_existing)) for _ in range(2)]
    with pytest.raises(click.Abort):
        choose(JOB, folder, [], Choice(ask=ask_existing))
    job = replace(JOB, resume=replace(RESUME, existing=Existing.FRESH))
    choose(job, folder, [], Choice(ask=ask_existing))

    assert [IGNORES in said[0][1], CONTINUES in said[1][1]] == [True, True]
    assert [each.existing for _, _, each in said] == [Existing.FRESH, Existing.CONTINUE]
    assert asked == ["continue", "continue", "fresh"]


def test_what_resumes_by_itself_cannot_be_started_fresh(folder: Path) -> None:
    job = replace(JOB, resume=None)
    lines = [line(folder, RunOutcome.DONE)]
    choose(job, folder, lines, Choice(existing=Existing.FRESH))
    keep(RESUME, folder)

    with pytest.raises(RocsteadyError, match="the script itself resumes from"):
        choose(job, folder, lines, Choice(existing=Existing.FRESH))
    assert choose(job, folder, lines, Choice())[1] == ""
