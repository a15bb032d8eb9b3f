"""When it is worth restarting before a failure, and that it happens right after a save."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from rocsteady.hangs.values import Heartbeat
from rocsteady.run.recovery.planned_restart import (
    PastFailure,
    PlannedRestart,
    SaveWatch,
    best_restart,
)

EVERY_TEN = (10, 20, 30, 40, 50, 60)


def failed(made: int, *, restart: float = 3.0) -> PastFailure:
    saves = tuple(save for save in EVERY_TEN if save <= made)
    return PastFailure(made=made, saves=saves, seconds=1.0, restart=restart)


def test_failures_at_one_place_are_avoided_by_the_save_before_it() -> None:
    assert best_restart([failed(37), failed(38), failed(39)], on_request=False) == 30
    assert best_restart([failed(37), failed(38), failed(39)], on_request=True) == 36


def test_where_a_save_comes_right_before_the_failure_nothing_is_gained() -> None:
    assert best_restart([failed(40), failed(40), failed(40)], on_request=False) is None


def test_a_restart_that_takes_long_is_not_made_more_often() -> None:
    made = (37, 41, 39, 43)

    assert best_restart([failed(each) for each in made], on_request=False) == 30
    assert best_restart([failed(each, restart=90.0) for each in made], on_request=False) != 30


@pytest.mark.parametrize("made", [(37, 38), (37, 38, 90), ()])
def test_few_failures_or_any_at_all_places_are_no_rule(made: tuple[int, ...]) -> None:
    assert best_restart([failed(each) for each in made], on_request=False) is None


def test_without_saves_there_is_no_good_moment() -> None:
    never = [PastFailure(made=40, saves=(), seconds=1.0, restart=3.0)] * 4

    assert best_restart(never, on_request=False) is None


def beat(step: int, saving: float) -> Heartbeat:
    return Heartbeat(
        pid=1,
        rank=None,
        world=None,
        thread=1,
        step=step,
        beats=step,
        phase="data",
        since=0.0,
        last_step=None,
        ended=False,
        raised=False,
        total=None,
        seconds_in={"checkpoint": saving},
        longest_in={},
        histogram={},
    )


def looked_at(
    plan: PlannedRestart | None, *seen: tuple[int, float], whole: bool = True, left: int = 1000
) -> tuple[list[bool], list[int], int]:
    asked: list[int] = []
    watch = SaveWatch(plan, lambda: time.time() if whole else 0.0, lambda: asked.append(1))
    times = [watch.is_time([beat(step, saving)], left) for step, saving in seen]
    return times, watch.saves, len(asked)


PLAN = PlannedRestart(after=30, fails_after=37, on_request=False)
STEPS = ((20, 0.1), (21, 0.2), (30, 0.2), (30, 0.3), (30, 0.3), (31, 0.3))


def test_it_is_time_one_step_after_a_save() -> None:
    times, saves, asked = looked_at(PLAN, *STEPS)

    assert times == [False] * 5 + [True]
    assert saves == [20, 21, 30]
    assert asked == 0


def test_it_is_not_time_without_a_plan_or_a_whole_checkpoint_or_near_the_end() -> None:
    assert not any(looked_at(None, *STEPS)[0])
    assert not any(looked_at(PLAN, *STEPS, whole=False)[0])
    assert not any(looked_at(PLAN, *STEPS, left=5)[0])


def test_who_saves_on_request_is_asked_once() -> None:
    plan = PlannedRestart(after=30, fails_after=37, on_request=True)

    times, _, asked = looked_at(plan, (29, 0.0), (30, 0.0), (31, 0.0), (32, 0.0))

    assert (times, asked) == ([False, False, True, True], 1)


def test_a_save_counts_also_if_its_time_does_not() -> None:
    """One of another thread than the one that trains, or so short that no time was counted."""
    watch = SaveWatch(None, time.time, lambda: None)

    assert watch.look([replace(beat(20, 0.0), saved=5.0)])
    assert not watch.look([replace(beat(21, 0.0), saved=5.0)])
    assert watch.saves == [20]
