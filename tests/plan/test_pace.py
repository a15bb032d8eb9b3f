"""The pace of a simulated training must come out, and its interval hold as often as it says."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rocsteady.plan.pace import (
    DRIFT,
    NORMAL,
    FailureCost,
    FailureHistory,
    StepTime,
    finish,
    measure,
)
from rocsteady.plan.values import Finish, Pace

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


HOUR, DAY = 3600.0, 86_400.0
RATE = 10.0  # steps a second
RUNS = 200
SAVES = FailureCost(again=60.0, interval=600.0)
NEVER_SAVES = FailureCost(again=60.0, interval=None)
FAILS_HOURLY = FailureHistory(
    failures=10_000, seconds=10_000 * HOUR
)  # long enough that it is well known


def pace_of(spread: float = 1e-6, *, starting: float = 0.0) -> Pace:
    """Return a pace whose logarithm is known as well as that."""
    off = math.exp(NORMAL * spread)
    return Pace(
        steps=500, seconds=50.0, rate=RATE, low=RATE / off, high=RATE * off, starting=starting
    )


def forecast(  # noqa: PLR0913 - as what it calls
    work: float,
    *,
    pace: Pace | None = None,
    history: FailureHistory | None = None,
    loss: FailureCost = SAVES,
    due: float | None = None,
    setup: float = 0.0,
) -> Finish:
    return finish(
        pace or pace_of(),
        round(work * RATE),
        history=history or FailureHistory(),
        loss=loss,
        due=due,
        setup=setup,
    )


def really(dice: random.Random, work: float, between: float, loss: FailureCost) -> float:
    """Carry out simulated work that fails at random, also while it starts again."""
    now = saved = 0.0
    step = loss.interval or work
    fails = dice.expovariate(1 / between)
    while saved < work:
        part = min(step, work - saved)
        if now + part <= fails:
            now, saved = now + part, saved + part
            continue
        now = fails
        fails = now + dice.expovariate(1 / between)
        while fails < now + loss.again:
            now, fails = fails, fails + dice.expovariate(1 / between)
        now += loss.again
    return now


@pytest.mark.parametrize(
    ("work", "history", "between"),
    [
        pytest.param(220.0, FailureHistory(), 1e9, id="minutes, nothing known, nothing fails"),
        pytest.param(2 * HOUR, FAILS_HOURLY, HOUR, id="two failures"),
        pytest.param(DAY, FAILS_HOURLY, HOUR, id="many failures"),
    ],
)
def test_a_forecast_holds_nine_times_in_ten(
    work: float, history: FailureHistory, between: float
) -> None:
    """How often it really fails is given here, and not taken from what the forecast supposes."""
    found = forecast(work, pace=pace_of(0.06), history=history)
    inside = 0
    for seed in range(RUNS):
        dice = random.Random(seed)  # noqa: S311 - a simulation
        end = really(dice, work * math.exp(dice.gauss(0.0, 0.06)), between, SAVES)
        inside += found.early <= end <= found.late
    assert 0.80 * RUNS <= inside <= 0.99 * RUNS


@pytest.mark.parametrize("loss", [SAVES, FailureCost(again=300.0, interval=1800.0)])
def test_long_work_takes_what_the_exact_formula_says(loss: FailureCost) -> None:
    assert loss.interval is not None
    work = 100 * DAY
    known = FailureHistory(failures=10**6, seconds=10**6 * HOUR)  # one an hour
    found = forecast(work, history=known, loss=loss)
    failures = work / loss.interval * math.expm1(loss.interval / HOUR)
    seconds = failures * (HOUR + loss.again)  # none while it starts
    assert found.seconds == pytest.approx(seconds, rel=0.01)
    assert found.lost == pytest.approx(1 - work / seconds, rel=0.02)
    assert found.failures == pytest.approx(failures, rel=0.01)


def test_the_start_of_a_process_is_no_time_in_which_it_fails() -> None:
    """A job that crashed 7 times in 210 steps and takes as long to start as to train."""
    pace = Pace(steps=60, seconds=3.0, rate=20.0, low=18.0, high=22.0, starting=10.0)
    seen = FailureHistory(failures=7, seconds=100.0, steps=210)

    found = finish(pace, 210, history=seen, loss=FailureCost(again=7.0, interval=0.0), due=None)

    assert found.failures == pytest.approx(7, rel=0.01)


def test_a_crash_is_seen_sooner_than_a_hang() -> None:
    crashes = FailureHistory(failures=2, kinds=("segfault", "bus-error"))
    hangs = FailureHistory(failures=2, kinds=("hang-in-loader", "gpu-hang"))
    both = FailureHistory(failures=2, kinds=("segfault", "hang-in-loader"))

    seconds = [each.seen_and_ended for each in (crashes, both, hangs, FailureHistory())]

    assert seconds == sorted(seconds)
    assert len(set(seconds)) == len(seconds)


def test_what_was_seen_twice_outweighs_what_was_supposed() -> None:
    """Two hangs in 113 steps are 35,000 in 1.97 million, and not 119."""
    seen = FailureHistory(failures=2, seconds=3600.0, steps=113)
    found = finish(
        replace(pace_of(), rate=2.0, low=2.0, high=2.0),
        1_970_000,
        history=seen,
        loss=FailureCost(again=30.0, interval=1.0),
        due=None,
    )
    assert found.failures == pytest.approx(35_000, rel=0.03)
    never = finish(pace_of(), 10**7, history=seen, loss=FailureCost(again=30.0), due=None)
    assert never.failures == pytest.approx(10**7 * 2 / 113, rel=0.03)


def test_where_nothing_fails_and_the_pace_is_sure_the_end_is_the_work() -> None:
    quiet = FailureHistory(failures=0, seconds=10_000 * DAY)
    found = forecast(HOUR, pace=pace_of(), history=quiet)
    assert (found.early, found.seconds, found.late) == pytest.approx([HOUR] * 3, rel=1e-4)
    assert found.lost == pytest.approx(0.0, abs=1e-4)


def test_the_end_of_a_job_that_mostly_starts_is_uncertain() -> None:
    quiet = FailureHistory(failures=0, seconds=10_000 * DAY)
    found = forecast(1.0, pace=pace_of(starting=30.0), history=quiet)
    assert found.early < 25 < found.seconds < 37 < found.late


def test_a_trial_of_a_second_says_less_than_one_of_a_minute() -> None:
    def width(each: float) -> float:
        pace = measure([StepTime(each * n, n) for n in range(1, 41)], started=0.0)
        assert pace is not None
        return pace.high / pace.low

    assert width(0.02) > 1.5 * width(2.0)


def test_the_interval_is_that_of_the_pace_where_nothing_fails() -> None:
    quiet = FailureHistory(failures=0, seconds=10_000 * DAY)
    found = forecast(HOUR, pace=pace_of(0.1), history=quiet)
    assert math.log(found.late / found.seconds) == pytest.approx(NORMAL * 0.1, rel=0.1)
    assert math.log(found.seconds / found.early) == pytest.approx(NORMAL * 0.1, rel=0.1)


@pytest.mark.parametrize(("due", "chance"), [(0.5 * HOUR, 0.0), (2 * HOUR, 1.0), (None, None)])
def test_a_deadline_far_before_or_after_the_end_leaves_no_doubt(
    due: float | None, chance: float | None
) -> None:
    quiet = FailureHistory(failures=0, seconds=10_000 * DAY)
    assert forecast(HOUR, pace=pace_of(0.06), history=quiet, due=due).in_time == chance


def test_a_deadline_in_the_middle_of_the_interval_is_met_half_the_time() -> None:
    middle = forecast(HOUR, pace=pace_of(0.06)).seconds
    found = forecast(HOUR, pace=pace_of(0.06), due=middle).in_time
    assert found == pytest.approx(0.5, abs=0.01)


def test_failures_that_were_seen_make_it_later() -> None:
    ends = [
        forecast(DAY, history=FailureHistory(failures=failures, seconds=DAY)).seconds
        for failures in (0, 10, 50, 200)
    ]
    assert ends == sorted(ends)
    assert ends[-1] > 1.3 * ends[0]


def test_without_a_checkpoint_it_is_much_later() -> None:
    saves, loses_all = (
        forecast(4 * HOUR, history=FAILS_HOURLY, loss=loss) for loss in (SAVES, NEVER_SAVES)
    )
    assert loses_all.seconds > 5 * saves.seconds
    assert loses_all.lost > 0.5


def test_what_cannot_end_is_said_to_take_for_ever_and_misses_every_deadline() -> None:
    often = FailureHistory(failures=10**5, seconds=10**5 * 60)  # one a minute
    found = forecast(DAY, history=often, loss=NEVER_SAVES, due=365 * DAY)
    assert found.seconds > 3650 * DAY
    assert found.in_time == 0.0
    assert math.isfinite(found.late)


def test_setup_comes_on_top() -> None:
    plain, later = forecast(HOUR), forecast(HOUR, setup=900.0)
    assert later.seconds == pytest.approx(plain.seconds + 900)
    assert later.early == pytest.approx(plain.early + 900)


@settings(max_examples=10, deadline=None)
@given(
    work=st.floats(1.0, 1e7),
    spread=st.floats(1e-3, 1.0),
    failures=st.integers(0, 1000),
    seconds=st.floats(0.0, 1e8),
    interval=st.none() | st.floats(0.1, 1e6),
)
def test_the_middle_lies_between_early_and_late_and_is_the_same_each_time(
    work: float, spread: float, failures: int, seconds: float, interval: float | None
) -> None:
    history = FailureHistory(failures=failures, seconds=seconds)
    loss = FailureCost(again=60.0, interval=interval)
    found = forecast(work, pace=pace_of(spread), history=history, loss=loss)
    assert 0 < found.early <= found.seconds <= found.late < math.inf
    assert 0 <= found.lost <= 1
    assert found == forecast(work, pace=pace_of(spread), history=history, loss=loss)


BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "forecast.py"
TIMES = 4.0  # that a busy machine may be slower or faster from one minute to the next


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a job is held to one processor: Linux")
def test_two_jobs_end_about_when_their_trials_say(torch_python: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = ["--python", torch_python, "--jobs", "mlp,crashes-once", "--json", str(figures)]
    told = subprocess.run(
        [sys.executable, str(BENCHMARK), *words, "--seconds", "10", "--trial", "3"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    results = {result["job"]: result for result in json.loads(figures.read_bytes())}
    assert sorted(results) == ["crashes-once", "mlp"], told.stderr
    for result in results.values():
        ahead = result["forecast"]
        assert result["code"] == 0, told.stderr
        assert result["trial"] <= 60
        assert 0 < ahead["early"] < ahead["seconds"] < ahead["late"]
        assert 1 / TIMES < result["real"] / ahead["seconds"] < TIMES
    assert "of 2; median error: " in told.stdout
