"""Lines for a terminal of any width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.screens.text_page import NARROW, RED, WIDE, Page, wrapped

TEXT = "The quick brown fox jumps over the lazy dog and comes back for more of the same."


@pytest.mark.parametrize(
    ("asked", "given_width"), [(1, 40), (40, 40), (80, 80), (100, 100), (400, 120)]
)
def test_a_page_is_neither_too_narrow_to_read_nor_too_wide(asked: int, given_width: int) -> None:
    assert Page(asked, colour=False).width == given_width


def test_a_row_has_its_text_beside_its_label() -> None:
    page = Page(80, colour=False)

    start = page.row("label", TEXT, indent=2, column=10)

    assert start == 12
    assert str(page) == (
        "  label     The quick brown fox jumps over the lazy dog and comes back for more\n"
        "            of the same.\n"
    )


def test_on_a_narrow_page_the_text_goes_below_the_label() -> None:
    page = Page(40, colour=False)

    start = page.row("label", TEXT, indent=2, column=10)

    assert start == 4
    assert str(page) == (
        "  label\n"
        "    The quick brown fox jumps over the\n"
        "    lazy dog and comes back for more of\n"
        "    the same.\n"
    )


def test_a_label_too_long_for_its_column_has_a_line_of_its_own() -> None:
    page = Page(80, colour=False)

    page.row("/a/long/path", "why", indent=2, column=8)

    assert str(page) == "  /a/long/path\n    why\n"


def test_a_row_without_a_label_or_without_text() -> None:
    page = Page(80, colour=False)

    page.row("", "only text", column=8)
    page.row("label", "", column=8)

    assert str(page) == "        only text\nlabel\n"


def test_a_line_that_is_meant_to_be_copied_is_never_broken() -> None:
    page = Page(40, colour=False)

    page.lines(["x" * 100], indent=4)

    assert str(page) == "    " + "x" * 100 + "\n"


def test_colour_is_added_around_what_is_plain_otherwise() -> None:
    page = Page(80, colour=True)

    page.line("BLOCKS", style=RED)
    page.line("plain")
    page.line("", style=RED)
    page.row("id", "text", column=4, style=RED)

    assert str(page) == "\x1b[31mBLOCKS\x1b[0m\nplain\n\n\x1b[31mid\x1b[0m  text\n"


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
