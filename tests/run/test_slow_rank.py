"""Which rank is named as slower than the others, and when none is."""

from __future__ import annotations

import pytest

from rocsteady.hangs.values import Heartbeat
from rocsteady.run.telling.slow_rank import TIMES, WINDOW, SlowRank

STEPS = 20  # in a window
Spent = dict[str, float]
PHASES = ("data", "compute", "backward", "optimizer", "evaluate")
FAST = {"data": 0.01, "compute": 0.1, "backward": 0.39}


def beat(rank: int, steps: int, spent: Spent) -> Heartbeat:
    return Heartbeat(
        pid=100 + rank, rank=rank, world=3, thread=100 + rank, step=steps, beats=0,
        phase="compute", since=0.0, last_step=None, ended=False, raised=False, total=None,
        seconds_in={name: each * steps for name, each in spent.items()},
        longest_in={}, histogram={},
    )  # fmt: skip


def said(*windows: list[Spent], steps: int = STEPS) -> list[str]:
    """Return what is said of ranks that spend so much on each step, in one window after another."""
    lines: list[str] = []
    slow_rank = SlowRank(lines.append)
    done, spent = 0, [dict.fromkeys(PHASES, 0.0) for _ in windows[0]]
    begins: list[Spent] = [{} for _ in windows[0]]
    for number, window in enumerate([begins, *windows]):
        done += steps if number else 0
        for whole, each in zip(spent, window, strict=True):
            for name, seconds in each.items():
                whole[name] += seconds * steps
        beats = [
            beat(rank, done, {name: each / max(1, done) for name, each in it.items()})
            for rank, it in enumerate(spent)
        ]
        slow_rank.look(number * WINDOW, beats)
    return lines


@pytest.mark.parametrize(
    ("slow", "line"),
    [
        (
            {"data": 0.3, "compute": 0.1, "backward": 0.1},
            (
                "slow: rank 2 takes 0.3 s of each step for its data, the other ranks of this host"
                " at most 10 ms; they wait for it."
            ),
        ),
        (
            {"data": 0.01, "compute": 0.4, "backward": 0.09},
            (
                "slow: rank 2 takes 0.4 s of each step for its forward pass, the other ranks of"
                " this host at most 0.1 s; they wait for it."
            ),
        ),
    ],
)
def test_a_rank_for_which_the_others_wait_is_named_once(slow: Spent, line: str) -> None:
    window = [FAST, FAST, slow]

    assert said(*[window] * (2 * TIMES)) == [line]
    assert said(*[window] * (TIMES - 1)) == []
    assert said(*[window] * (TIMES - 1), [FAST] * 3, window) == []  # not steadily


@pytest.mark.parametrize(
    "ranks",
    [
        [FAST, FAST],
        [FAST, FAST, {"data": 0.06, "compute": 0.1, "backward": 0.34}],  # by little
        # It waits in its forward pass, for a rank that validates.
        [{**FAST, "evaluate": 0.3}, FAST, {**FAST, "compute": 0.4}],
        # It alone has a loader, and hands out batches.
        [{"compute": 0.3, "backward": 0.2}, {"compute": 0.3}, {"data": 0.3, "compute": 0.1}],
        [FAST],
    ],
)
def test_none_is_named_that_is_not_waited_for(ranks: list[Spent]) -> None:
    assert said(*[ranks] * (2 * TIMES)) == []


def test_a_window_without_steps_is_no_comparison() -> None:
    slow = {"data": 5.0, "compute": 0.1, "backward": 0.1}

    assert said(*[[FAST, FAST, slow]] * (2 * TIMES), steps=1) == []
