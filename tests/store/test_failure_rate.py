from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.store.forecast import LATEST_RUNS, PRIOR_BETWEEN, between_failures
from rocsteady.store.values import Run, RunLine


def line(number: int, seconds: float | None, attempts: int) -> RunLine:
    """Return a run that took so long; None: it goes on."""
    run = Run(
        id=number,
        name=f"run-{number}",
        command=("python",),
        job={},
        strategy=Strategy(),
        folder="",
        machine="",
        boot_id="",
        process="",
        started=1000.0,
        ended=None if seconds is None else 1000.0 + seconds,
    )
    return RunLine(
        run=run,
        alive=None,
        attempts=attempts,
        incidents=0,
        step=None,
        total=None,
        rate=None,
        last_progress=None,
        seconds_left=None,
    )


def test_nothing_is_known_at_first() -> None:
    assert between_failures([], but=1) == PRIOR_BETWEEN


def test_each_attempt_after_the_first_was_a_failure() -> None:
    lines = [line(3, 3600.0, 4), line(2, 7200.0, 1)]

    assert between_failures(lines, but=9) == (PRIOR_BETWEEN + 10800.0) / 4


def test_this_run_and_those_that_go_on_do_not_count() -> None:
    lines = [line(9, 10.0, 50), line(3, None, 50), line(2, 7200.0, 2)]

    assert between_failures(lines, but=9) == (PRIOR_BETWEEN + 7200.0) / 2


def test_what_was_long_ago_does_not_count() -> None:
    lines = [line(number, 0.0, 1) for number in range(LATEST_RUNS)] + [line(999, 1e9, 1000)]

    assert between_failures(lines, but=-1) == PRIOR_BETWEEN


def test_a_clock_that_was_set_back_does_no_harm() -> None:
    assert between_failures([line(1, -50.0, 0)], but=9) == PRIOR_BETWEEN
