"""Waiting for what can clear up by itself: how long, until when, and what was there before."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.failures.ladder import choose_remedy
from rocsteady.failures.remedy import SAME_AGAIN
from rocsteady.model import FailedAttempt, Failure, FailureKind, Next, Strategy
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.backoff import Drives, limit_of
from rocsteady.store.values import AttemptResult
from rocsteady.system import mounted_drives
from rocsteady.system.gpu_users import held_by_others
from tests.conftest import Recorded
from tests.failures.remedies.conftest import Situations
from tests.run.lived import Lived
from tests.values import failure

CLEARS = ("killed", "network-error", "disk-full", "storage-unavailable", "gpu-taken", "oom-host")


@pytest.fixture
def situations(recorded: Recorded) -> Situations:
    return Situations(recorded)


class Judge:
    """A run in a folder, whose failures are judged by what is gone there."""

    def __init__(
        self, recorded: Recorded, folder: Path, gone: Callable[[], Path | None] = lambda: None
    ) -> None:
        self.run, self.drives = Lived(recorded), Drives(folder, gone)

    def judge(self, named: Failure, *, stepped: bool) -> Failure:
        """Name a failure of another attempt."""
        judged = self.drives.judged(named, self.run.history, AttemptResult(stepped=stepped))
        self.run.ends(judged, 25 if stepped else 0)
        return judged


def missing(path: Path | str) -> Failure:
    line = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    return failure(FailureKind.SCRIPT_ERROR, seen=(line,))


def test_waits_grow_from_five_seconds_to_ten_minutes_and_progress_ends_them(
    recorded: Recorded,
) -> None:
    lived = Lived(recorded, RunOptions(give_up_after=timedelta(days=9)))
    lived.fails("killed")
    waits = [lived.fails("killed").wait for _ in range(10)]

    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert lived.fails("killed", 90).wait == 0


def test_one_wait_is_announced_until_something_else_happens(recorded: Recorded) -> None:
    lived = Lived(recorded)
    kinds = ("killed", "killed", "killed", "network-error", "network-error")

    assert [lived.fails(kind, 0).announced for kind in kinds] == [False, True, True, False, True]


@pytest.mark.parametrize(
    ("in_allocation", "steps", "limit"),
    [
        (False, 25, timedelta(days=1)),
        (False, 0, timedelta(hours=1)),
        (True, 25, timedelta(minutes=20)),
        (True, 0, timedelta(minutes=20)),
    ],
)
def test_how_long_depends_on_what_worked_and_where(
    recorded: Recorded, *, in_allocation: bool, steps: int, limit: timedelta
) -> None:
    lived = Lived(recorded)
    lived.fails("killed", steps)

    assert limit_of(lived.history, lived.options, in_allocation=in_allocation) == limit


def test_the_limit_and_the_deadline_end_it(recorded: Recorded) -> None:
    at_once = Lived(recorded, RunOptions(give_up_after=timedelta(0)))

    assert at_once.fails("killed").ends
    assert Lived(recorded, due=30.0).fails("killed").ends
    assert not Lived(recorded, due=90.0).fails("killed").ends


def test_what_was_waited_counts_for_who_takes_the_run_over(recorded: Recorded) -> None:
    lived = Lived(recorded, RunOptions(give_up_after=timedelta(seconds=300)))
    lived.fails("killed", 0)
    for _ in range(2):
        lived.fails("killed", 0)
        lived.taken_over()

    assert lived.history.waited == pytest.approx(3 * 60 + 5 + 10)
    lived.now += 90_000.0  # while nobody supervised it
    assert not lived.fails("killed", 0).ends
    assert lived.fails("killed", 0).ends


@pytest.mark.parametrize("kind", CLEARS)
def test_what_can_clear_up_is_tried_again_however_often(situations: Situations, kind: str) -> None:
    waited = FailedAttempt(
        strategy=Strategy(), failure=situations(kind).failure.fingerprint, clears=True
    )
    situation = situations(kind, clears=True, tried=(waited,) * 50)

    choice = choose_remedy(situation)

    assert not choice.ends
    assert choice.waits or kind == "oom-host"  # for which there are workarounds
    assert Situations.preview(situation)[-1].waits


def test_waits_use_up_no_budget_of_other_failures(situations: Situations) -> None:
    plain = situations("hang-in-loader")
    waited = FailedAttempt(
        strategy=Strategy(), failure=situations("disk-full").failure.fingerprint, clears=True
    )

    assert choose_remedy(situations("hang-in-loader", tried=(*(waited,) * 50, *plain.tried))).remedy


@pytest.mark.parametrize("kind", ["script-error", "script-exit", "interrupted"])
def test_what_was_intended_or_is_a_bug_is_not_tried_again(recorded: Recorded, kind: str) -> None:
    decision = Lived(recorded).fails(kind, code=3)

    assert (decision.next, decision.code) == (Next.END, 3)


def test_giving_up_has_the_code_of_the_place(recorded: Recorded) -> None:
    options = RunOptions(give_up_after=timedelta(0))
    waits = Lived(recorded).fails("killed")

    assert (waits.next, waits.waits, waits.remedy) == (Next.AGAIN, True, SAME_AGAIN)
    assert Lived(recorded, options, in_allocation=True).fails("killed").code == 75
    assert Lived(recorded, options).fails("killed").code == 76


def test_a_path_that_was_never_there_is_the_scripts_error(
    recorded: Recorded, tmp_path: Path
) -> None:
    absent = missing(tmp_path / "no" / "data.bin")

    assert Judge(recorded, tmp_path).judge(absent, stepped=False) is absent


def test_a_folder_that_is_gone_after_steps_is_waited_for(
    recorded: Recorded, tmp_path: Path
) -> None:
    judge = Judge(recorded, tmp_path)
    judged = [judge.judge(missing("data/1.bin"), stepped=True) for _ in range(3)]

    assert {each.kind for each in judged} == {FailureKind.STORAGE_UNAVAILABLE}

    cleared = judge.drives.cleared(judge.run.history)
    assert not cleared()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.bin").touch()
    assert cleared()


def test_a_file_that_is_missing_twice_in_a_folder_that_is_there_is_the_scripts_error(
    recorded: Recorded,
    tmp_path: Path,
) -> None:
    os.utime(tmp_path, (0, 0))
    judge = Judge(recorded, tmp_path)

    kinds = [judge.judge(missing("1.bin"), stepped=True).kind for _ in range(2)]

    assert kinds == [FailureKind.STORAGE_UNAVAILABLE, FailureKind.SCRIPT_ERROR]


def test_a_file_that_was_removed_is_waited_for(recorded: Recorded, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a.bin", "b.bin"):
        (data / name).touch()
        os.utime(data / name, (0, 0))
    judge = Judge(recorded, tmp_path)
    (data / "a.bin").unlink()

    kinds = [judge.judge(missing(data / "a.bin"), stepped=True).kind for _ in range(3)]
    (data / "c.bin").touch()  # somebody writes there: it may just lack the file
    late = judge.judge(missing(data / "a.bin"), stepped=True).kind

    assert kinds == [FailureKind.STORAGE_UNAVAILABLE] * 3
    assert late == FailureKind.SCRIPT_ERROR


def test_no_try_is_made_while_the_drive_of_the_checkpoints_is_gone(
    recorded: Recorded, tmp_path: Path
) -> None:
    gone: list[Path] = [tmp_path / "out"]
    judge = Judge(recorded, tmp_path, lambda: gone[0] if gone else None)

    found = judge.judge(failure(FailureKind.SCRIPT_ERROR), stepped=True)
    decision = judge.run.decides(gone=str(gone[0]))
    cleared = judge.drives.cleared(judge.run.history)
    over_before = cleared()
    gone.clear()

    assert found.kind == FailureKind.STORAGE_UNAVAILABLE
    assert decision.wait == timedelta(days=1).total_seconds()
    assert (over_before, cleared()) == (False, True)


def test_what_an_earlier_attempt_has_passed_was_there(recorded: Recorded, tmp_path: Path) -> None:
    judge = Judge(recorded, tmp_path)
    judge.run.fails("killed")

    for _ in range(2):
        judged = judge.judge(missing("1.bin"), stepped=False)
        assert judged.kind == FailureKind.STORAGE_UNAVAILABLE


@pytest.mark.parametrize(
    ("name", "listed"), [("drive", "drive"), ("My Passport", r"My\040Passport")]
)
def test_a_drive_that_was_unmounted_is_gone_even_if_its_folder_is_there(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, listed: str
) -> None:
    mounts, drive = tmp_path / "mounts", tmp_path / name
    drive.mkdir()
    os.utime(drive, (0, 0))  # nothing was removed from it
    mounts.write_text(f"server:/x {tmp_path}/{listed} nfs rw 0 0\n")
    monkeypatch.setattr(mounted_drives, "MOUNTS", mounts)
    judge = Judge(recorded, tmp_path)
    mounts.write_text("")

    for _ in range(2):
        judged = judge.judge(missing(drive / "1.bin"), stepped=True)
        assert judged.kind == FailureKind.STORAGE_UNAVAILABLE


def test_memory_of_other_processes_on_a_gpu_is_counted(tmp_path: Path) -> None:
    for pid, size in ((10, 100), (11, 300), (12, 50)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "vram_5").write_text(f"{size}\n")

    assert held_by_others({10}, tmp_path) == 350
    assert held_by_others({10, 11, 12}, tmp_path) == 0
    assert held_by_others(set(), tmp_path / "none") == 0
