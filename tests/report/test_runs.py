"""The list of runs: when each will be done and is due, and never wider than the terminal."""

from __future__ import annotations

from datetime import timezone

import msgspec
import pytest

from rocsteady.journal.values import Forecast, Run, RunLine
from rocsteady.report.deadline import met, remains
from rocsteady.report.runs import render_runs

NOW = 1763920800.0  # Sun 23 Nov 2025 18:00 UTC
HOUR, DAY = 3600.0, 86400.0
DUE = NOW + 7 * DAY
RUN = Run(
    id=1, name="a-name-as-long-as-any-is", command=("python",), job={}, strategy={}, folder="/r",
    machine="m", boot_id="b", process="", started=NOW - DAY,
)  # fmt: skip
LINE = RunLine(
    run=RUN, alive=True, attempts=1, incidents=0, step=1_234_567, total=9_876_543, rate=12.34,
    last_progress=NOW - 90, seconds_left=5 * DAY, deadline=DUE,
)  # fmt: skip


def ahead(at: float, off: float = HOUR) -> Forecast:
    return Forecast(at=at, early=at - off, late=at + off, rate=12.34, left=1, failures=0.1)


def shown(line: RunLine) -> list[str]:
    page = render_runs([line], now=NOW, width=80, colour=False, zone=timezone.utc)
    return page.splitlines()[1:]


@pytest.mark.parametrize(
    ("forecast", "expected"),
    [
        (
            ahead(NOW + DAY + 8 * HOUR),
            "  done about Tue 25 Nov 02:00, due Sun 30 Nov 18:00: 5 d 16 h to spare",
        ),
        (ahead(DUE + 2 * HOUR), "  done about Sun 30 Nov 20:00, due Sun 30 Nov 18:00: 2 h late"),
        (
            ahead(DUE - 600),
            "  done about Sun 30 Nov 17:50, due Sun 30 Nov 18:00: 10 min to spare, or late",
        ),
        (
            ahead(DUE + 600),
            "  done about Sun 30 Nov 18:10, due Sun 30 Nov 18:00: 10 min late, or in time",
        ),
        (None, "  due Sun 30 Nov 18:00, in 7 d"),
    ],
)
def test_a_run_that_goes_on_against_its_deadline(forecast: Forecast | None, expected: str) -> None:
    _, second = shown(msgspec.structs.replace(LINE, forecast=forecast))

    assert second == expected


def test_every_line_fits_80_columns() -> None:
    lines = shown(msgspec.structs.replace(LINE, forecast=ahead(DUE - 3661)))

    assert max(map(len, lines)) <= 80
    assert len(lines) == 2
    assert lines[0] == (
        "a-name-as-long-as-any running          1,234,567/9,876,543    12.34/s  90 s ago"
    )


def test_without_a_deadline_the_end_is_said_alone() -> None:
    line = msgspec.structs.replace(LINE, deadline=None, forecast=ahead(NOW + HOUR))

    assert shown(line)[1] == "  done about Sun 23 Nov 19:00"
    assert len(shown(msgspec.structs.replace(LINE, deadline=None))) == 1


def test_a_stalled_run_shows_its_state_and_rate_and_no_end() -> None:
    line = msgspec.structs.replace(
        LINE, stalled=True, rate=0.0, seconds_left=None, deadline=None, last_progress=NOW - 240
    )

    (shown_line,) = shown(line)
    assert shown_line.split()[1:] == ["stalled", "1,234,567/9,876,543", "0.00/s", "4", "min", "ago"]


def test_a_run_that_was_left_is_foretold_from_now() -> None:
    line = msgspec.structs.replace(LINE, alive=False, deadline=None, forecast=ahead(NOW + HOUR))

    assert shown(line)[1] == "  if it goes on now, done about Sun 23 Nov 19:00"


@pytest.mark.parametrize(
    ("ended", "outcome", "expected"),
    [
        (DUE - 3 * HOUR - 600, "done", "  3 h 10 min before the deadline"),
        (DUE + 2 * HOUR, "done", "  2 h late"),
        (NOW - 5, "ended, not done", "  due Sun 30 Nov 18:00, in 7 d"),
    ],
)
def test_a_run_that_ended(ended: float, outcome: str, expected: str) -> None:
    run = msgspec.structs.replace(RUN, ended=ended, outcome=outcome)

    assert shown(msgspec.structs.replace(LINE, run=run))[1] == expected


def test_a_deadline_that_passed() -> None:
    line = msgspec.structs.replace(LINE, deadline=NOW - HOUR)

    assert shown(line)[1] == "  due Sun 23 Nov 17:00, 1 h ago"


def test_what_is_done_at_the_deadline_is_in_time() -> None:
    assert met(DUE, DUE) == "0.0 s before the deadline"
    assert met(DUE + 0.5, DUE) == "0.0 s before the deadline"


def test_what_is_left_of_a_run_that_ended() -> None:
    told = [remains(300, 1000, rate, NOW + HOUR, now=NOW) for rate in (None, 1.0, 0.01)]

    assert told[0].startswith("300 of 1,000 steps are left; due ")
    assert told[0].endswith(", in 1 h")
    assert told[1].startswith("300 of 1,000 steps are left, 5 min at the pace seen; due ")
    assert ": in time if it goes on by " in told[1]
    assert told[2].endswith(": too late at that pace")
