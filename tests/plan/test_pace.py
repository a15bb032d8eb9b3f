"""The pace of a simulated training must come out, and its interval hold as often as it says."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from rocsteady.plan.pace import DRIFT, StepTime, measure
from rocsteady.plan.values import Pace

TRIALS = 200
LOOK_EVERY = 0.2  # seconds, as the supervisor looks
START = 4.0  # seconds until the first step begins


class Training:
    """Step times as real trainings have them; by default even ones."""

    def __init__(self, each: float, *, noise: float = 0.1) -> None:
        self.each, self.noise = each, noise
        self.warm, self.slow = 0, 1.0  # steps, the first of which takes so many times as long
        self.every, self.pause = 0, 0.0  # steps from one validation to the next, and its seconds

    def ends(self, dice: random.Random, count: int) -> Iterator[float]:
        """Yield when each step ends, and at last when the training does."""
        at = START
        for step in range(1, count + 1):
            took = self.each * math.exp(dice.gauss(0.0, self.noise) - self.noise**2 / 2)
            at += took * (1 + (self.slow - 1) * max(0.0, 1 - (step - 1) / max(1, self.warm)))
            yield at
            if self.every and step % self.every == 0:
                at += self.pause
        yield at

    @property
    def mean(self) -> float:
        """Seconds of a step, with its share of the validation."""
        return self.each + (self.pause / self.every if self.every else 0.0)


def marks_of(ends: list[float], within: float) -> list[StepTime]:
    """Look at a training as the supervisor does."""
    marks, seen = [], 0
    for look in range(1, round(within / LOOK_EVERY)):
        at = look * LOOK_EVERY
        step = seen
        while step < len(ends) and ends[step] <= at:
            step += 1
        if step > seen:
            marks.append(StepTime(at, step))
            seen = step
    return marks


def tried(training: Training, seed: int, within: float = 55.0) -> Pace:
    dice = random.Random(seed)  # noqa: S311 - a simulation
    count = math.ceil(within / training.each)
    pace = measure(marks_of(list(training.ends(dice, count)), within), started=0.0)
    assert pace is not None
    return pace


def with_pauses(each: float, every: int, pause: float) -> Training:
    training = Training(each)
    training.every, training.pause = every, pause
    return training


def with_warm_up(each: float, steps: int, slow: float) -> Training:
    training = Training(each)
    training.warm, training.slow = steps, slow
    return training


@pytest.mark.parametrize(
    "training",
    [
        pytest.param(Training(0.2), id="even, short steps"),
        pytest.param(Training(2.0), id="even, long steps"),
        pytest.param(Training(0.2, noise=1.0), id="very uneven steps"),
        pytest.param(with_warm_up(0.1, 20, 5.0), id="after a warm-up"),
    ],
)
def test_the_interval_holds_nine_times_in_ten(training: Training) -> None:
    """The machine's own speed drifts from the trial to the run, as much as is allowed for."""
    inside = 0
    for seed in range(TRIALS):
        pace = tried(training, seed)
        drift = random.Random(-1 - seed).gauss(0.0, DRIFT)  # noqa: S311 - a simulation
        inside += pace.low <= math.exp(drift) / training.mean <= pace.high
    assert 0.80 * TRIALS <= inside <= 0.99 * TRIALS


@pytest.mark.parametrize(
    "training",
    [
        pytest.param(Training(0.1), id="short steps"),
        pytest.param(Training(2.0), id="long steps"),
        pytest.param(with_warm_up(0.1, 20, 5.0), id="warm-up"),
        pytest.param(with_pauses(0.05, 200, 2.0), id="validation"),
        pytest.param(with_pauses(0.1, 70, 1.0), id="checkpoints"),
    ],
)
def test_the_end_is_neither_too_early_nor_too_late_on_average(training: Training) -> None:
    errors = []
    steps = round(220 / training.mean)
    for seed in range(20):
        pace = tried(training, seed)
        *_, end = training.ends(random.Random(-1 - seed), steps)  # noqa: S311 - a simulation
        errors.append((pace.starting + steps / pace.rate) / end - 1)
    assert abs(sum(errors) / len(errors)) < 0.02


def test_the_warm_up_does_not_count() -> None:
    pace = tried(with_warm_up(0.1, 40, 10.0), 0)
    assert pace.rate == pytest.approx(10.0, rel=0.02)
    # 18 s more than 40 even steps take, before which the process needs START to begin.
    assert pace.starting == pytest.approx(START + 18.5, abs=3.0)


def test_a_pause_in_the_middle_makes_it_less_sure() -> None:
    even, paused = tried(Training(0.05), 0), tried(with_pauses(0.05, 400, 5.0), 0)
    assert paused.high / paused.low > 1.2 * even.high / even.low


def test_no_interval_is_narrower_than_the_drift_of_a_machine() -> None:
    pace = tried(Training(0.05, noise=0.0), 0)
    assert math.log(pace.high / pace.low) >= 2 * 1.644 * DRIFT


@pytest.mark.parametrize("count", range(5))
def test_too_few_marks_tell_nothing(count: int) -> None:
    marks = [StepTime(float(number), number) for number in range(1, count + 1)]
    assert measure(marks, started=0.0) is None


def test_few_slow_steps_are_enough() -> None:
    pace = measure([StepTime(10.0 * number, number) for number in range(1, 7)], started=0.0)
    assert pace is not None
    assert pace.rate == pytest.approx(0.1)
    assert pace.steps == round(pace.seconds / 10)


def test_what_came_before_a_checkpoint_that_it_went_back_to_does_not_count() -> None:
    slow = [StepTime(1.0 * number, number) for number in range(1, 21)]
    fast = [StepTime(25 + 0.5 * number, 10 + number) for number in range(1, 41)]
    pace = measure([*slow, *fast], started=0.0)
    assert pace is not None
    assert pace.rate == pytest.approx(2.0)
    assert pace.steps <= len(fast)


def test_a_process_that_goes_on_from_a_checkpoint_did_not_make_the_steps_before_it() -> None:
    marks = [StepTime(5 + 0.5 * number, 1000 + number) for number in range(1, 102)]
    pace = measure(marks, started=0.0)
    assert pace is not None
    assert pace.rate == pytest.approx(2.0)
    assert pace.starting == pytest.approx(5.0)
