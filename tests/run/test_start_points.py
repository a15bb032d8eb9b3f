"""Attempts from one checkpoint, and what counts as further."""

from __future__ import annotations

import pytest

from rocsteady.run.attempt.progress import ProgressCounts
from rocsteady.run.recovery.recovery import StartPoints


def after(*ends: tuple[str, int, bool]) -> StartPoints:
    starts = StartPoints()
    for start, made, progressed in ends:
        starts.ended(start, made, progressed=progressed)
    return starts


def test_three_attempts_from_one_checkpoint_are_enough() -> None:
    first, barren = ("", 160, True), ("step 150", 10, False)

    assert not after(first, barren, barren).is_stuck
    assert after(first, barren, barren, barren).is_stuck
    assert not after(first, barren, barren, ("step 150", 20, True)).is_stuck
    assert not after(first, barren, barren, ("step 200", 10, False)).is_stuck
    assert not after(*[("", 160, False)] * 9).is_stuck  # there the ladder has its own bounds


@pytest.mark.parametrize("start", ["", "step 150"])
def test_a_little_further_each_time_but_never_to_a_save_ends_too(start: str) -> None:
    further = [(start, steps, True) for steps in range(10, 19)]

    assert not after(*further[:7]).is_stuck
    assert after(*further[:8]).is_stuck
    assert not after(*further[:7], ("step 300", 10, True)).is_stuck


def test_a_script_that_goes_on_from_a_newer_checkpoint_each_time_is_not_stuck() -> None:
    starts = StartPoints()
    for number in range(20):
        starts.ended("", 15, progressed=True, read=f"last.pt {number // 3}")

    assert not starts.is_stuck


def test_after_two_deaths_from_one_checkpoint_it_is_saved_earlier() -> None:
    one, two = ("step 150", 10, False), ("step 150", 13, True)

    assert after(one).save_after is None
    assert after(one, two).save_after == 5
    assert after(("", 3, True), ("", 1, False)).save_after == 1
    assert after(one, ("step 150", 0, False)).save_after is None
    assert after(one, two, ("step 155", 90, True), ("step 155", 90, True)).save_after == 5


def test_only_what_the_script_counts_is_further_and_one_step_more_is_not() -> None:
    furthest = ProgressCounts()

    steps = [furthest.passes(step, {}) for step in (1, 160, 161, 160, None, 163)]

    assert steps == [True, True, False, False, False, True]


def test_without_a_step_another_count_of_the_scripts_own_must_be_higher() -> None:
    furthest = ProgressCounts()
    seen = [
        furthest.passes(150, {"saved epoch": 3, "printed": 30}),
        furthest.passes(None, {"saved epoch": 3, "printed": 31}),
        furthest.passes(None, {"saved epoch": 4, "printed": 2}),
        furthest.passes(None, {"epoch": 9}),  # nothing to compare it with
        furthest.passes(None, {"epoch": 10}),
        furthest.passes(None, {}),
    ]

    assert seen == [True, False, True, False, True, False]


def test_what_is_saved_for_the_first_time_is_further_though_it_failed_at_the_same_step() -> None:
    furthest = ProgressCounts()
    seen = [
        furthest.passes(60, {}),
        furthest.passes(60, {}),
        furthest.passes(60, {"saved step": 30}),
        furthest.passes(60, {"saved step": 31}),
        furthest.passes(60, {"saved step": 45}),
    ]

    assert seen == [True, False, True, False, True]
