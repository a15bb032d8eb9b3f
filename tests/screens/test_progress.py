"""How far something is: redrawn on a terminal, a line now and then without one."""

from __future__ import annotations

import io
import sys
import time

import pytest

from rocsteady.screens import screen as module
from rocsteady.screens.screen import Progress, progress


class Terminal(io.StringIO):
    """Claims to be one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("part", [None, 0.5])
def test_on_a_terminal_it_is_redrawn_and_taken_away(
    monkeypatch: pytest.MonkeyPatch, part: float | None
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")

    with progress(lambda _: Progress("[red]far\x1b[2J", part)):
        pass

    assert "[red]far\\x1b[2J" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("\x1b[2K")  # the line is erased


def test_without_a_terminal_it_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LINE_EVERY", 0.05)

    with progress(lambda _: Progress("trying", 0.25)):
        time.sleep(0.2)

    assert set(capsys.readouterr().err.splitlines()) == {"rocsteady: 25%, trying"}
