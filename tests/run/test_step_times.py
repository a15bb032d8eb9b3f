from __future__ import annotations

import pytest

from rocsteady.run.attempt.progress import MAX_STEP_TIMES, StepTimes


def test_a_checkpoint_has_at_most_the_step_that_was_next_seen() -> None:
    step_times = StepTimes()
    for at, step in ((10.0, 100), (11.0, 200), (12.0, 300), (20.0, 210), (21.0, 220)):
        step_times.add(at, step)

    found = [step_times.step_at(when) for when in (9.0, 10.5, 12.0, 15.0, 20.5, 99.0)]
    assert found == [(100, 100), (100, 200), (200, 300), (210, 210), (210, 220), (220, 220)]


def test_a_save_that_does_not_fit_what_was_seen_is_passed_over() -> None:
    step_times = StepTimes()
    step_times.add(10.0, 100)
    step_times.saved(12.0, 400)  # of another process, say
    step_times.add(11.0, 200)

    assert [step_times.saved_step(when) for when in (10.5, 12.5)] == [(100, 100), (200, 0)]


def test_nothing_is_known_at_first() -> None:
    assert StepTimes().step_at(1e9) == (0, 0)


def test_a_clock_that_goes_back_is_passed_over() -> None:
    step_times = StepTimes()
    for at, step in ((10.0, 1), (5.0, 2), (11.0, 3)):
        step_times.add(at, step)

    assert step_times.step_at(4.0) == (1, 1)
    assert step_times.step_at(10.5) == (1, 3)


def test_a_clock_that_was_set_back_by_a_day_begins_anew() -> None:
    step_times = StepTimes()
    for at, step in ((90_000.0, 1), (90_001.0, 2), (3600.0, 3), (3601.0, 9)):
        step_times.add(at, step)

    assert step_times.step_at(3600.5) == (3, 9)


@pytest.mark.parametrize(
    "steps", [MAX_STEP_TIMES, MAX_STEP_TIMES + 1, 3 * MAX_STEP_TIMES, 5 * MAX_STEP_TIMES]
)
def test_a_long_run_is_remembered_more_coarsely(steps: int) -> None:
    step_times = StepTimes()
    for step in range(steps):
        step_times.add(float(step), step)

    assert len(step_times._at) <= MAX_STEP_TIMES
    for when in (0, steps // 3, steps - 1):
        least, most = step_times.step_at(when)
        assert when - 16 <= least <= when <= most <= when + 16
