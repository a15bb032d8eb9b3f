"""One line each, never waiting for its reader; the journal keeps what it is about."""

from __future__ import annotations

import pytest

from rocsteady.run.telling.announcer import Announcer
from rocsteady.run.telling.events import Done, GaveUp, Note
from rocsteady.screens.run_lines import RunScreen


def test_an_event_is_one_line_that_starts_with_our_name(capsys: pytest.CaptureFixture[str]) -> None:
    Announcer().say("the loss is finite:\n  again.")

    assert capsys.readouterr().err == "rocsteady: the loss is finite: again.\n"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_what_is_exhausted_is_no_fault_of_ours(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    announcer = Announcer()
    announcer.bug("retrying without changes", error)
    announcer.bug("retrying without changes", KeyError("x"))

    named, bug = capsys.readouterr().err.splitlines()
    assert ("ulimit -u" in named, "internal error" in named) == (True, False)
    assert "internal error" in bug


def test_while_a_child_runs_its_way_to_stderr_is_used() -> None:
    lines: list[str] = []
    announcer = Announcer()
    announcer.through = lines.append

    announcer.say("moving")

    assert lines == ["rocsteady: moving"]


def test_without_colour_every_line_has_our_name_and_no_control_characters() -> None:
    done = Done(seconds=72.0, steps=500, hangs=1, keep="rocsteady run", report="rocsteady report")

    for event in (done, Note(text="a\x1b[31mname")):
        for line in RunScreen(plain=True).lines(event):
            assert line.startswith("rocsteady: ")
            assert line.isprintable()


def test_advice_that_is_a_sentence_ends_once() -> None:
    gave_up = GaveUp(seconds=72.0, why="hung", place="train.py:14 load", report="rocsteady report")

    assert RunScreen().text(gave_up).endswith("hung. Fix train.py:14. rocsteady report")
    assert RunScreen().text(Note(text="The run continues.")).endswith("continues.")
