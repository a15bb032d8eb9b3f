"""What ``watch`` shows of a log."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from rocsteady.hangs.values import Heartbeat
from rocsteady.model import RunState, Strategy
from rocsteady.run.telling.run_watcher import RunWatcher, WatchView, line_with_time
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.values import AttemptRecord, Sample


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("step 3", "16:02:59 step 3"),
        ("14:02:59 step 3", "14:02:59 step 3"),
        ("[2026-11-17 15:02:59] step 3", "[2026-11-17 15:02:59] step 3"),
    ],
)
def test_a_line_of_the_log_has_one_time(printed: str, shown: str) -> None:
    east = timezone(timedelta(hours=2))
    assert line_with_time(f"2026-11-17T14:02:59.123Z {printed}", east) == shown


def test_a_time_that_no_calendar_has_stays_as_it_is() -> None:
    assert line_with_time("2026-99-17T14:02:59.123Z step") == "2026-99-17T14:02:59.123Z step"


def beat(**more: object) -> Heartbeat:
    known: dict[str, object] = {
        "pid": 1, "rank": None, "world": None, "thread": 1, "step": 212, "beats": 0,
        "phase": "data", "since": 0.0, "last_step": None, "ended": False, "raised": False,
        "total": None, "seconds_in": {}, "longest_in": {}, "histogram": {}, **more,
    }  # fmt: skip
    return Heartbeat(**known)  # type: ignore[arg-type] # as the test says


def follow(folder: Path, beats: tuple[Heartbeat, ...] = (), attempts: int = 1) -> WatchView:
    """Begin a run with these attempts, and look at it."""
    with closing(Journal(find_place(folder / "project", state=folder / "state"))) as journal:
        run = journal.begin_run(("true",), job={}, strategy=Strategy(), name="calm-otter")
        for number in range(1, attempts + 1):
            begin = AttemptRecord(
                run=run.id, number=number, strategy=Strategy(), boot_id="b",
                started=run.started + number,
            )  # fmt: skip
            journal.record(begin)
            log = Path(run.folder) / f"attempt-{number}.log"
            log.write_text(f"2026-11-17T14:02:59.123Z line of {number}\n")
        journal.flush(timedelta(seconds=5))
        watcher = RunWatcher(journal, "calm-otter", {})
        watcher._heartbeats = lambda _: beats  # type: ignore[assignment, method-assign]
        return watcher.view()


def test_the_log_goes_across_restarts(tmp_path: Path) -> None:
    log = follow(tmp_path, attempts=3).log

    assert [line.rpartition(" ")[2] for line in log if "line of" in line] == ["1", "2", "3"]
    assert len(log) == 5  # and a mark for each retry


def test_the_last_save_and_the_last_step_are_those_of_the_process(tmp_path: Path) -> None:
    now = time.monotonic()
    view = follow(tmp_path, (beat(saved=now - 12, saved_step=200, last_step=now - 4),))

    assert view.saved is not None
    assert view.saved.step == 200
    assert view.now - view.saved.at == pytest.approx(12, abs=1)
    assert view.quiet == pytest.approx(4, abs=1)


def test_a_step_that_a_resumed_process_counts_from_nowhere_is_not_told(tmp_path: Path) -> None:
    resumed = beat(saved=time.monotonic() - 1, saved_step=10)
    view = follow(tmp_path, (resumed,), attempts=2)

    assert view.saved is not None
    assert view.saved.step is None


def test_a_run_that_resumes_is_as_far_as_it_was(tmp_path: Path) -> None:
    with closing(Journal(find_place(tmp_path / "project", state=tmp_path / "state"))) as journal:
        run = journal.begin_run(("true",), job={}, strategy=Strategy(), name="calm-otter")
        for attempt, steps in ((1, (210, 211, 212)), (2, (0, 0, 0))):
            for second, step in enumerate(steps):
                at = time.time() - 100 + 50 * attempt + second
                journal.progressed(
                    run.id,
                    attempt,
                    Sample(at=at, step=step, total=500, verdict=RunState.STARTING, quiet=0.0),
                )
        journal.close()

    with closing(Journal(find_place(tmp_path / "project", state=tmp_path / "state"))) as journal:
        (line,) = journal.runs()
    assert (line.step, line.total) == (212, 500)
