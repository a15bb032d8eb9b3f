"""One line each, never waiting for its reader."""

from __future__ import annotations

import pytest

from rocsteady.report.times import spelled
from rocsteady.supervisor.announcer import Announcer


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (0.94, "0.9 s"),
        (45.4, "45 s"),
        (119.6, "2 min"),
        (190, "3 min 10 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_are_spelled_as_people_do(seconds: float, words: str) -> None:
    assert spelled(seconds) == words


def test_an_event_is_one_line_that_starts_with_our_name(capsys: pytest.CaptureFixture[str]) -> None:
    Announcer().say("hung:\n  no step for 9 s.")

    assert capsys.readouterr().err == "rocsteady: hung: no step for 9 s.\n"


def test_while_a_child_runs_its_way_to_stderr_is_used() -> None:
    lines: list[str] = []
    announcer = Announcer()
    announcer.through = lines.append

    announcer.say("progress resumed.")

    assert lines == ["rocsteady: progress resumed."]
