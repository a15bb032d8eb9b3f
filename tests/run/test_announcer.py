"""One line each, never waiting for its reader."""

from __future__ import annotations

import pytest

from rocsteady.run.announcer import Announcer


def test_an_event_is_one_line_that_starts_with_our_name(capsys: pytest.CaptureFixture[str]) -> None:
    Announcer().say("hung:\n  no step for 9 s.")

    assert capsys.readouterr().err == "rocsteady: hung: no step for 9 s.\n"


def test_while_a_child_runs_its_way_to_stderr_is_used() -> None:
    lines: list[str] = []
    announcer = Announcer()
    announcer.through = lines.append

    announcer.say("progress resumed.")

    assert lines == ["rocsteady: progress resumed."]
