"""The full screen: it fits every size, shows the odd rank, and no control characters."""

from __future__ import annotations

import re
from datetime import UTC

import msgspec
import pytest
from samples import RANKS, WATCHED

from rocsteady.model import IntentKind
from rocsteady.screens.sparkline import long_bar, sparkline
from rocsteady.screens.watch import RankView, WatchView, odd_ranks, render_watch
from rocsteady.store.values import Intent

_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def drawn(view: WatchView, width: int, height: int, *, colour: bool = False) -> list[str]:
    text = render_watch(view, width=width, height=height, colour=colour, zone=UTC)
    return text.split("\n")


@pytest.mark.parametrize("size", [(80, 24), (120, 30), (250, 60), (40, 10), (20, 3), (80, 1)])
@pytest.mark.parametrize("view", [WATCHED, RANKS])
def test_it_fits(view: WatchView, size: tuple[int, int]) -> None:
    width, height = size
    lines = drawn(view, width, height)
    in_colour = [_COLOUR.sub("", line) for line in drawn(view, width, height, colour=True)]

    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert in_colour == lines


def test_what_a_script_prints_does_not_reach_the_terminal() -> None:
    log = ("\x1b[2J\x1b]0;title\x07", "全角" * 60, "e\u0301" * 10)
    lines = drawn(msgspec.structs.replace(WATCHED, log=log), 80, 24)

    assert not any("\x1b" in line or "\x07" in line for line in lines)
    assert any("全角" in line and len(line) < 60 for line in lines)


def test_a_pause_is_not_a_stall() -> None:
    pause = Intent(
        id=1, run=1, attempt=3, kind=IntentKind.PAUSE, what="attempt 3", machine="m", boot_id="b",
        process="", at=0.0,
    )  # fmt: skip
    story = msgspec.structs.replace(RANKS.story, intents=(pause,))

    assert "stalled" in drawn(RANKS, 80, 24)[0]
    assert "paused" in drawn(msgspec.structs.replace(RANKS, story=story), 80, 24)[0]


def rank(number: int, step: int, phase: str = "backward", quiet: float = 9.0) -> RankView:
    return RankView(rank=number, step=step, phase=phase, quiet=quiet)


def test_the_odd_rank_is_the_one_behind_or_alone_in_its_phase() -> None:
    assert odd_ranks([rank(0, 9), rank(1, 9), rank(2, 5)]) == {2}
    assert odd_ranks([rank(0, 9), rank(1, 9), rank(2, 9, "data")]) == {2}
    assert odd_ranks([rank(0, 9), rank(1, 8), rank(2, 9)]) == set()  # read between two steps
    assert odd_ranks([rank(0, 9, quiet=0.1), rank(1, 9), rank(2, 9, "data", 0.1)]) == set()
    assert odd_ranks([rank(0, 9)]) == set()


def test_a_short_peak_is_seen_in_a_long_row() -> None:
    values = [1.0] * 500 + [9.0] + [1.0] * 500

    assert "█" in sparkline(values, 20, blocks=True)
    assert len(sparkline(values, 20, blocks=True)) == 20
    assert sparkline([], 20, blocks=True) == ""
    assert long_bar(0.999, 10, blocks=False) == "#########."
