"""A terminal of any width, with and without colour, for commands that run in this process."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

import click
import pytest

from rocsteady.cli.main import one_line, rocsteady
from rocsteady.screens.screen import tell

TAGS = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow"}
_STYLE = re.compile(r"\x1b\[([\d;]+)m")


class Terminal(io.StringIO):
    """Keeps what is written to it, and says that it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def drawn(patch: pytest.MonkeyPatch, width: int, draw: Callable[[], None], *, colour: bool) -> str:
    """Return what is written to stdout and stderr, with colours as ``<red>...</>``."""
    terminal = Terminal()
    with patch.context() as inner:
        inner.setenv("COLUMNS", str(width))
        inner.setenv("TERM", "xterm")
        inner.delenv("NO_COLOR", raising=False)
        if not colour:
            inner.setenv("NO_COLOR", "1")
        inner.setattr(sys, "stdout", terminal)
        inner.setattr(sys, "stderr", terminal)
        draw()
    return _STYLE.sub(_tag, terminal.getvalue())


def command(*arguments: str) -> None:
    """Run a command as ``rocsteady`` does; an exit code is no error here."""
    try:
        rocsteady.main(list(arguments), prog_name="rocsteady", standalone_mode=False)
    except click.exceptions.Exit:
        return
    except click.ClickException as error:
        tell(one_line(error))


def _tag(found: re.Match[str]) -> str:
    codes = found.group(1).split(";")
    return "</>" if codes == ["0"] else f"<{' '.join(TAGS[code] for code in codes)}>"
