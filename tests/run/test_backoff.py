"""Waiting for what can clear up by itself: how long, until when, and what was there before."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.failures.ladder import choose_remedy, preview
from rocsteady.failures.remedy import RETRY
from rocsteady.failures.situation import FailedAttempt
from rocsteady.model import Failure, FailureKind, Next, Strategy
from rocsteady.run.recovery.backoff import Backoff
from rocsteady.run.recovery.recovery import Decision, History, recover
from rocsteady.system import drives
from rocsteady.system.gpu_users import held_by_others
from tests.conftest import Recorded
from tests.failures.remedies.conftest import Situations
from tests.run.test_recovery import end
from tests.values import failure

CLEARS = ("killed", "network-error", "disk-full", "storage-unavailable", "gpu-taken", "oom-host")
AGAIN = Decision(next=Next.AGAIN, why="it can resume", code=1)


@pytest.fixture
def situations(recorded: Recorded) -> Situations:
    return Situations(recorded)


def missing(path: Path | str) -> Failure:
    line = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    return failure(FailureKind.SCRIPT_ERROR, seen=(line,))


def test_waits_grow_from_five_seconds_to_ten_minutes_and_progress_ends_them(
    tmp_path: Path,
) -> None:
    waiting = Backoff(tmp_path, {}, give_up_after=timedelta(days=9))
    waits = []
    for _ in range(10):
        waiting.failed(failure("killed"), progressed=False, stepped=True)
        waits.append(round(waiting.wait().seconds))
    waiting.failed(failure("killed"), progressed=True, stepped=True)

    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert waiting.wait().seconds == 0


def test_one_wait_is_announced_until_something_else_happens(tmp_path: Path) -> None:
    waiting = Backoff(tmp_path, {})
    announced = []
    for kind in ("killed", "killed", "killed", "disk-full", "disk-full"):
        waiting.failed(failure(kind), progressed=False, stepped=True)
        announced.append(waiting.wait().first)

    assert announced == [True, False, False, True, False]


@pytest.mark.parametrize(
    ("environment", "stepped", "limit"),
    [
        ({}, True, timedelta(days=1)),
        ({}, False, timedelta(hours=1)),
        ({"SLURM_JOB_ID": "7"}, True, timedelta(minutes=20)),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False, timedelta(minutes=20)),
    ],
)
def test_how_long_depends_on_what_worked_and_where(
    tmp_path: Path, environment: dict[str, str], *, stepped: bool, limit: timedelta
) -> None:
    waiting = Backoff(tmp_path, environment)
    waiting.failed(failure("killed"), progressed=False, stepped=stepped)

    assert waiting.limit == limit
    assert not waiting.is_over


def test_the_limit_and_the_deadline_end_it(tmp_path: Path) -> None:
    assert Backoff(tmp_path, {}, give_up_after=timedelta(0)).is_over
    assert Backoff(tmp_path, {}, due=time.time() - 1).is_over
    assert not Backoff(tmp_path, {}, due=time.time() + 60).is_over


@pytest.mark.parametrize("kind", CLEARS)
def test_what_can_clear_up_is_tried_again_however_often(situations: Situations, kind: str) -> None:
    waited = FailedAttempt(
        strategy=Strategy(), failure=situations(kind).failure.fingerprint, clears=True
    )
    situation = situations(kind, clears=True, tried=(waited,) * 50)

    choice = choose_remedy(situation)

    assert choice.strategy is not None
    assert choice.waits or kind == "oom-host"  # for which there are workarounds
    assert preview(situation)[-1].waits


def test_waits_use_up_no_budget_of_other_failures(situations: Situations) -> None:
    plain = situations("hang-in-loader")
    waited = FailedAttempt(
        strategy=Strategy(), failure=situations("disk-full").failure.fingerprint, clears=True
    )

    assert choose_remedy(situations("hang-in-loader", tried=(*(waited,) * 50, *plain.tried))).remedy


@pytest.mark.parametrize("kind", ["script-error", "script-exit", "interrupted"])
def test_what_was_intended_or_is_a_bug_is_not_tried_again(
    situations: Situations, kind: str
) -> None:
    decision = recover(AGAIN, end(), History(attempts=3, situation=situations(kind)))

    assert (decision.next, decision.code) == (Next.END, AGAIN.code)


def test_giving_up_has_a_reason_and_the_code_of_the_place(situations: Situations) -> None:
    situation = situations("killed", clears=True)
    waits = recover(AGAIN, end(), History(attempts=9, situation=situation))
    ends = recover(
        AGAIN, end(), History(attempts=9, situation=situation, gave_up="killed", give_up_code=75)
    )

    assert (waits.next, waits.waits, waits.remedy) == (Next.AGAIN, True, RETRY)
    assert (ends.next, ends.code, ends.why) == (Next.END, 75, "killed")


def test_a_path_that_was_never_there_is_the_scripts_error(tmp_path: Path) -> None:
    absent = missing(tmp_path / "no" / "data.bin")

    assert Backoff(tmp_path, {}).judged(absent, stepped=False) is absent


def test_a_folder_that_is_gone_after_steps_is_waited_for(tmp_path: Path) -> None:
    waiting = Backoff(tmp_path, {})
    judged = [waiting.judged(missing("data/1.bin"), stepped=True) for _ in range(3)]
    waiting.failed(judged[-1], progressed=False, stepped=True)

    assert {each.kind for each in judged} == {FailureKind.STORAGE_UNAVAILABLE}

    cleared = waiting.wait().cleared
    assert not cleared()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.bin").touch()
    assert cleared()


def test_a_file_that_is_missing_twice_in_a_folder_that_is_there_is_the_scripts_error(
    tmp_path: Path,
) -> None:
    os.utime(tmp_path, (0, 0))
    waiting = Backoff(tmp_path, {})

    kinds = [waiting.judged(missing("1.bin"), stepped=True).kind for _ in range(2)]

    assert kinds == [FailureKind.STORAGE_UNAVAILABLE, FailureKind.SCRIPT_ERROR]


def test_a_file_that_was_removed_is_waited_for(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a.bin", "b.bin"):
        (data / name).touch()
        os.utime(data / name, (0, 0))
    waiting = Backoff(tmp_path, {})
    (data / "a.bin").unlink()

    kinds = [waiting.judged(missing(data / "a.bin"), stepped=True).kind for _ in range(3)]
    (data / "c.bin").touch()  # somebody writes there: it may just lack the file
    late = waiting.judged(missing(data / "a.bin"), stepped=True).kind

    assert kinds == [FailureKind.STORAGE_UNAVAILABLE] * 3
    assert late == FailureKind.SCRIPT_ERROR


def test_no_try_is_made_while_the_drive_of_the_checkpoints_is_gone(tmp_path: Path) -> None:
    gone: list[Path] = [tmp_path / "out"]
    limit = timedelta(hours=2)
    waiting = Backoff(tmp_path, {}, give_up_after=limit, gone=lambda: gone[0] if gone else None)

    found = waiting.judged(failure(FailureKind.SCRIPT_ERROR), stepped=True)
    waiting.failed(found, progressed=True, stepped=True)
    wait = waiting.wait()
    over_before = wait.cleared()
    gone.clear()

    assert found.kind == FailureKind.STORAGE_UNAVAILABLE
    assert wait.seconds == pytest.approx(limit.total_seconds(), abs=5)
    assert (over_before, wait.cleared()) == (False, True)


def test_what_an_earlier_attempt_has_passed_was_there(tmp_path: Path) -> None:
    waiting = Backoff(tmp_path, {})
    waiting.failed(failure("killed"), progressed=True, stepped=True)

    for _ in range(2):
        judged = waiting.judged(missing("1.bin"), stepped=False)
        assert judged.kind == FailureKind.STORAGE_UNAVAILABLE


@pytest.mark.parametrize(
    ("name", "listed"), [("drive", "drive"), ("My Passport", r"My\040Passport")]
)
def test_a_drive_that_was_unmounted_is_gone_even_if_its_folder_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, listed: str
) -> None:
    mounts, drive = tmp_path / "mounts", tmp_path / name
    drive.mkdir()
    os.utime(drive, (0, 0))  # nothing was removed from it
    mounts.write_text(f"server:/x {tmp_path}/{listed} nfs rw 0 0\n")
    monkeypatch.setattr(drives, "MOUNTS", mounts)
    waiting = Backoff(tmp_path, {})
    mounts.write_text("")

    for _ in range(2):
        judged = waiting.judged(missing(drive / "1.bin"), stepped=True)
        assert judged.kind == FailureKind.STORAGE_UNAVAILABLE


def test_memory_of_other_processes_on_a_gpu_is_counted(tmp_path: Path) -> None:
    for pid, size in ((10, 100), (11, 300), (12, 50)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "vram_5").write_text(f"{size}\n")

    assert held_by_others({10}, tmp_path) == 350
    assert held_by_others({10, 11, 12}, tmp_path) == 0
    assert held_by_others(set(), tmp_path / "none") == 0
