"""The list of runs: when each will be done and is due, and never wider than the terminal."""

from __future__ import annotations

from datetime import UTC

import msgspec
import pytest

from rocsteady.model import Forecast, RunOutcome, Strategy
from rocsteady.screens.runs import render_runs
from rocsteady.screens.screen import Page
from rocsteady.store.values import Run, RunLine
from rocsteady.wording import met, remains

NOW = 1763920800.0  # Sun 23 Nov 2025 18:00 UTC
HOUR, DAY = 3600.0, 86400.0
DUE = NOW + 7 * DAY
RUN = Run(
    id=1,
    name="a-name-as-long-as-any-is",
    command=("python",),
    job={},
    strategy=Strategy(),
    folder="/r",
    machine="m",
    boot_id="b",
    process="",
    started=NOW - DAY,
)
LINE = RunLine(
    run=RUN, alive=True, attempts=1, incidents=0, step=1_234_567, total=9_876_543, rate=12.34,
    last_progress=NOW - 90, seconds_left=5 * DAY, deadline=DUE,
)  # fmt: skip


def ahead(at: float, off: float = HOUR) -> Forecast:
    return Forecast(at=at, early=at - off, late=at + off, rate=12.34, left=1, failures=0.1)


def shown(line: RunLine) -> list[str]:
    page = render_runs([line], now=NOW, page=Page(80, colour=False), zone=UTC)
    return page.splitlines()[1:]


def forecast_of(line: RunLine) -> str:
    """Return what stands below the row, after the last progress."""
    below = " ".join(" ".join(shown(line)[1:]).split())
    return below.removeprefix("last progress 90 s ago; ").removeprefix(
        "last progress 90 s ago, 5 d left; "
    )


@pytest.mark.parametrize(
    ("forecast", "expected"),
    [
        (
            ahead(NOW + DAY + 8 * HOUR),
            "ETA Tue 25 Nov 02:00, deadline Sun 30 Nov 18:00: 5 d 16 h to spare",
        ),
        (
            ahead(DUE + 2 * HOUR),
            "ETA Sun 30 Nov 20:00, deadline Sun 30 Nov 18:00: 2 h late",
        ),
        (
            ahead(DUE - 600),
            ("ETA Sun 30 Nov 17:50, deadline Sun 30 Nov 18:00: 10 min to spare (may be late)"),
        ),
        (
            ahead(DUE + 600),
            ("ETA Sun 30 Nov 18:10, deadline Sun 30 Nov 18:00: 10 min late (may be on time)"),
        ),
        (None, "deadline Sun 30 Nov 18:00 (in 7 d)"),
    ],
)
def test_a_run_that_goes_on_against_its_deadline(forecast: Forecast | None, expected: str) -> None:
    assert forecast_of(msgspec.structs.replace(LINE, forecast=forecast)) == expected


def test_every_line_fits_80_columns() -> None:
    lines = shown(msgspec.structs.replace(LINE, forecast=ahead(DUE - 3661)))

    assert max(map(len, lines)) <= 80
    step = "1,234,567/9,876,543"
    assert lines[0].split()[:5] == [RUN.name[:21], "running", "12%", step, "12.34"]
    assert "ETA Sun 30 Nov 16:58," in " ".join(lines[1].split())


def test_a_step_beyond_the_total_shows_neither_total_nor_part() -> None:
    words = " ".join(shown(msgspec.structs.replace(LINE, step=7500, total=60))).split()

    assert "7,500" in words
    assert not any("%" in word or "/60" in word for word in words)


def test_without_a_deadline_the_end_is_said_alone() -> None:
    line = msgspec.structs.replace(LINE, deadline=None, forecast=ahead(NOW + HOUR))

    assert forecast_of(line) == "ETA 19:00"


def test_a_stalled_run_shows_no_speed_and_no_end() -> None:
    line = msgspec.structs.replace(
        LINE, stalled=True, rate=0.0, seconds_left=None, deadline=None, last_progress=NOW - 240
    )

    words = " ".join(shown(line)).split()
    assert words[1:4] == ["stalled", "12%", "1,234,567/9,876,543"]
    assert "0.00" not in words
    assert words[-3:] == ["4", "min", "ago"]


def test_a_run_that_was_left_is_foretold_from_now() -> None:
    line = msgspec.structs.replace(LINE, alive=False, deadline=None, forecast=ahead(NOW + HOUR))

    assert forecast_of(line) == "if resumed now: ETA 19:00"


@pytest.mark.parametrize(
    ("ended", "outcome", "expected"),
    [
        (DUE - 3 * HOUR - 600, RunOutcome.DONE, "3 h 10 min before the deadline"),
        (DUE + 2 * HOUR, RunOutcome.DONE, "2 h late"),
        (NOW - 5, RunOutcome.NOT_DONE, "deadline Sun 30 Nov 18:00 (in 7 d)"),
    ],
)
def test_a_run_that_ended(ended: float, outcome: RunOutcome, expected: str) -> None:
    run = msgspec.structs.replace(RUN, ended=ended, outcome=outcome)

    assert " ".join(" ".join(shown(msgspec.structs.replace(LINE, run=run))).split()).endswith(
        expected
    )


def test_a_deadline_that_passed() -> None:
    line = msgspec.structs.replace(LINE, deadline=NOW - HOUR)

    assert forecast_of(line) == "deadline 17:00 (1 h ago)"


def test_what_is_done_at_the_deadline_is_in_time() -> None:
    assert met(DUE, DUE) == "0.0 s before the deadline"
    assert met(DUE + 0.5, DUE) == "0.0 s before the deadline"


def test_what_is_left_of_a_run_that_ended() -> None:
    told = [remains(300, 1000, rate, NOW + HOUR, now=NOW) for rate in (None, 1.0, 0.01)]

    assert told[0].startswith("300 of 1,000 steps left; deadline ")
    assert told[0].endswith(" (in 1 h)")
    assert told[1].startswith("300 of 1,000 steps left, 5 min at this pace; deadline ")
    assert ": on time if resumed by " in told[1]
    assert told[2].endswith(": too late at this pace")
