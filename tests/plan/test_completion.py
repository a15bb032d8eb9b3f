"""The forecast must agree with simulated runs that fail, go back, and start again."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocsteady_train.goodput import share_of_work

from rocsteady.plan.pace import NORMAL, FailureCost, FailureHistory, finish
from rocsteady.plan.values import Finish, Pace

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
def test_the_interval_holds_nine_times_in_ten(
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
    share = share_of_work(loss.interval, 0.0, loss.again, HOUR)
    assert found.seconds == pytest.approx(work / share, rel=0.01)
    assert found.lost == pytest.approx(1 - share, rel=0.02)
    assert found.failures == pytest.approx(work / share / HOUR, rel=0.01)


def test_where_nothing_fails_and_the_pace_is_sure_the_end_is_the_work() -> None:
    quiet = FailureHistory(failures=0, seconds=10_000 * DAY)
    found = forecast(HOUR, pace=pace_of(starting=30.0), history=quiet)
    assert (found.early, found.seconds, found.late) == pytest.approx([HOUR + 30] * 3, rel=1e-4)
    assert found.lost == pytest.approx(0.0, abs=1e-4)


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
