"""Lines and tables for a terminal of any width, and a line that says how far something is."""

from __future__ import annotations

import io
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.file_proxy import FileProxy
from terminal import Terminal

from rocsteady.colours import RED, coloured
from rocsteady.screens import screen
from rocsteady.screens.screen import NARROW, WIDE, Column, Page, ProgressLine, progress, wrapped

TEXT = "The quick brown fox jumps over the lazy dog and comes back for more of the same."
COMMAND = "rocsteady run --resume calm-otter --with loader-inline -- python train.py --epochs 90"


@pytest.mark.parametrize(("asked", "given_width"), [(1, 40), (80, 80), (400, 120)])
def test_a_page_is_neither_too_narrow_to_read_nor_too_wide(asked: int, given_width: int) -> None:
    assert Page(asked, colour=False).width == given_width


def test_a_row_has_its_text_beside_its_label_or_below_it() -> None:
    wide, narrow = Page(80, colour=False), Page(40, colour=False)

    assert wide.row("label", TEXT, indent=2, column=10) == 12
    assert narrow.row("label", TEXT, indent=2, column=10) == 4

    assert str(wide) == (
        "  label     The quick brown fox jumps over the lazy dog and comes back for more\n"
        "            of the same.\n"
    )
    assert str(narrow).startswith("  label\n    The quick brown fox jumps over the\n")


def test_what_is_meant_to_be_copied_is_never_broken() -> None:
    page = Page(40, colour=True)

    page.lines([COMMAND], indent=4)
    page.paragraph("/a/path" * 20)

    assert str(page) == f"    {COMMAND}\n{'/a/path' * 20}\n"


def test_a_number_stays_with_its_unit() -> None:
    text = "a word or two of 100 % and 3 min or 20 GiB for ROCm 7.2 in all"

    for width in range(20, 70):
        lines = wrapped(text, width)
        assert " ".join(lines) == text
        assert not any(line.startswith(("%", "min", "GiB", "7.2")) for line in lines)


def test_text_of_others_is_neither_markup_nor_control() -> None:
    page = Page(80, colour=True)
    text = "[bold]a[/bold] [/] :smile: \x1b[2J\x07 http://x 123 'y'"
    seen = text.replace("\x1b", "\\x1b").replace("\x07", "\\x07")

    page.line(text)
    page.paragraph(text)
    page.row("", text, column=4)
    page.table((Column("[red]"),), [(text,)])

    plain = str(page).replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert plain.split() == f"{seen} {seen} {seen} [red] {seen}".split()


def test_colour_is_added_around_what_is_plain_otherwise() -> None:
    page = Page(80, colour=True)

    page.line("BLOCKS", style=RED)
    page.line("", style=RED)
    page.row("id", "text", column=4, style=RED)

    assert str(page) == "\x1b[31mBLOCKS\x1b[0m\n\n\x1b[31mid\x1b[0m  text\n"
    assert coloured("a", RED) == "\x1b[31ma\x1b[0m"


def test_columns_without_room_go_below_their_row() -> None:
    page = Page(40, colour=False)
    columns = (Column("run"), Column("step", right=True), Column("none"), Column("why", least=30))

    page.table(columns, [("one", "7", "-", TEXT), ("two", "12", "", "-")])

    head, one, *below, two = str(page).splitlines()
    assert (head, one, two) == ("run  step", "one     7", "two    12")
    assert " ".join(" ".join(below).split()) == TEXT
    assert all(len(line) <= 40 for line in below)


@given(st.text(), st.integers(-5, 200))
def test_no_line_is_longer_than_the_width_unless_it_is_one_word(text: str, width: int) -> None:
    for line in wrapped(text, width):
        assert len(line) <= max(width, 20) or len(line.split()) == 1


@given(
    st.text(alphabet="ab -"),
    st.text(alphabet="ab -"),
    st.integers(0, 4),
    st.integers(1, 30),
    st.integers(NARROW, WIDE),
)
def test_a_row_says_every_word_and_keeps_to_the_width(
    label: str, text: str, indent: int, column: int, width: int
) -> None:
    page = Page(width, colour=False)

    page.row(label, text, indent=indent, column=column)

    lines = str(page).splitlines()
    assert " ".join(lines).split() == [*label.split(), *text.split()]
    longest_word = max((len(word) for word in text.split()), default=0)
    limit = max(width, indent + len(label), indent + max(2, column) + longest_word)
    assert all(len(line) <= limit for line in lines)


@pytest.mark.parametrize("part", [None, 0.5])
def test_on_a_terminal_it_is_redrawn_and_taken_away(
    monkeypatch: pytest.MonkeyPatch, part: float | None
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")

    with progress(lambda _: ProgressLine("[red]far\x1b[2J", part)):
        pass

    assert "[red]far\\x1b[2J" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("\x1b[2K")  # the line is erased


def test_without_a_terminal_it_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(screen, "LINE_EVERY", 0.05)

    with progress(lambda _: ProgressLine("trying", 0.25)):
        time.sleep(0.2)

    assert set(capsys.readouterr().err.splitlines()) == {"rocsteady: 25%, trying"}


def test_a_message_goes_through_a_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    below, drawn = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    monkeypatch.setattr(sys, "stderr", FileProxy(Console(file=drawn), below))

    screen.tell("wrote it")

    assert drawn.getvalue() == "wrote it\n"
    assert below.buffer.getvalue() == b""
