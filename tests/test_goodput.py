"""The interval must be the best there is, found here by trying; the shares are the table's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocsteady_train.goodput import best_interval, between_failures, share_of_work

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
STALLS = st.floats(1e-3, 1e4)
BETWEENS = st.floats(1.0, 1e8)
COSTS = [(30, 720), (30, 180), (5, 60), (1, 30), (0.5, 15), (0.1, 5)]  # stall, again
TABLE = {  # time between failures: best share of work in percent, for each of the costs
    7 * DAY: ["98.9", "99.0", "99.6", "99.8", "99.87", "99.94"],
    DAY: ["96.6", "97.2", "98.9", "99.5", "99.6", "99.8"],
    3 * HOUR: ["86.8", "91.2", "96.5", "98.4", "98.9", "99.5"],
    30 * MINUTE: ["55.5", "75.0", "89.7", "95.1", "96.9", "98.7"],
    18 * MINUTE: ["40.2", "66.2", "85.8", "93.1", "95.7", "98.2"],
}


def found_by_trying(stall: float, between: float) -> float:
    """Return the best share over all intervals, by golden section on the logarithm."""

    def share(log_interval: float) -> float:
        return share_of_work(math.exp(log_interval), stall, 0.0, between)

    ratio = (math.sqrt(5) - 1) / 2
    low, high = math.log(between * 1e-7), math.log(between * 20)
    for _ in range(200):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if share(left) < share(right):
            low = left
        else:
            high = right
    return share((low + high) / 2)


@given(stall=STALLS, between=BETWEENS)
def test_no_other_interval_is_better(stall: float, between: float) -> None:
    if stall > 20 * between:
        return  # nothing gets done; see the test of hopeless machines
    here = share_of_work(best_interval(stall, between), stall, 0.0, between)
    assert here == pytest.approx(found_by_trying(stall, between), rel=0.01)


@given(stall=STALLS, between=BETWEENS)
def test_the_interval_lies_below_the_time_between_failures(stall: float, between: float) -> None:
    assert 0 < best_interval(stall, between) <= between


@given(share=st.floats(1e-12, 1e-5), between=BETWEENS)
def test_a_cheap_save_gives_what_young_found(share: float, between: float) -> None:
    young = math.sqrt(2 * share * between * between)
    assert best_interval(share * between, between) == pytest.approx(young, rel=0.01)


@given(stall=STALLS, between=BETWEENS, more=st.floats(1.01, 100.0))
def test_dearer_saves_and_rarer_failures_make_it_longer(
    stall: float, between: float, more: float
) -> None:
    here = best_interval(stall, between) * (1 - 1e-12)  # but for the last digits
    assert best_interval(stall * more, between) >= here
    assert best_interval(stall, between * more) >= here


def test_a_save_that_costs_nothing_is_made_all_the_time() -> None:
    assert best_interval(0.0, HOUR) == 0.0


def test_a_hopeless_machine_still_has_an_answer() -> None:
    assert best_interval(1000 * HOUR, HOUR) == pytest.approx(HOUR)


@given(
    interval=st.floats(1e-3, 1e6),
    stall=STALLS,
    again=st.floats(0.0, 1e4),
    between=BETWEENS,
)
def test_a_share_lies_between_nothing_and_all(
    interval: float, stall: float, again: float, between: float
) -> None:
    assert 0 <= share_of_work(interval, stall, again, between) < 1


@pytest.mark.parametrize("between", TABLE)
def test_the_published_table_comes_out(between: float) -> None:
    for (stall, again), text in zip(COSTS, TABLE[between], strict=True):
        best = share_of_work(best_interval(stall, between), stall, again, between)
        last_place = 10.0 ** -len(text.partition(".")[2])
        assert 100 * best == pytest.approx(float(text), abs=0.51 * last_place)


def test_failures_seen_outweigh_the_prior_with_time() -> None:
    assert between_failures(0.0, 0, prior=DAY) == DAY
    assert between_failures(9 * DAY, 0, prior=DAY) == 10 * DAY
    assert between_failures(99 * HOUR, 99, prior=HOUR) == HOUR
