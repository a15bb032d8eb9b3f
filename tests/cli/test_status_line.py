"""The line at the foot of a terminal, and none where there is no terminal."""

from __future__ import annotations

import io

from rocsteady.screens.status_line import Redrawn, bar


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_it_is_drawn_cut_to_the_width_and_taken_away() -> None:
    stream = Terminal()
    foot = Redrawn(stream, 10)

    foot.draw("a line that is long", now=True)
    foot.clear()
    foot.clear()

    assert stream.getvalue() == "\ra line th\r" + " " * 9 + "\r"


def test_it_is_not_drawn_more_often_than_one_can_see() -> None:
    stream = Terminal()
    foot = Redrawn(stream, 10)

    for number in range(100):
        foot.draw(str(number))

    assert stream.getvalue().count("\r") < 5


def test_where_there_is_no_terminal_nothing_is_drawn() -> None:
    stream = io.StringIO()
    foot = Redrawn(stream, 10)

    foot.draw("a line", now=True)
    foot.clear()

    assert stream.getvalue() == ""


def test_the_bar_is_as_full_as_it_is_done() -> None:
    assert bar(0) == "[" + "." * 20 + "]"
    assert bar(0.5) == "[" + "#" * 10 + "." * 10 + "]"
    assert bar(7) == "[" + "#" * 20 + "]"
