"""The bounds hold as often as they say, and chance is called a difference at most 1 time in 20."""

from __future__ import annotations

import random

import pytest

from rocsteady.probes.statistics import chance, fewer_than_one_in, interval, most_without


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a simulation


@pytest.mark.parametrize(
    ("tries", "one_in"), [(1, 1), (2, 1), (4, 1), (5, 2), (20, 7), (200, 67), (2000, 668)]
)
def test_without_a_failure_the_bound_is_about_three_in_the_tries(tries: int, one_in: int) -> None:
    assert fewer_than_one_in(tries) == one_in
    assert most_without(tries) <= 1 / one_in
    assert (1 - most_without(tries)) ** tries == pytest.approx(0.05)


def test_no_try_proves_nothing() -> None:
    assert most_without(0) == 1.0
    assert fewer_than_one_in(0) == 1


@pytest.mark.parametrize(
    ("failures", "tries", "low", "high"),
    [  # as R's binom.test and the tables of Clopper and Pearson have them
        (1, 10, 0.0025286, 0.4450161),
        (4, 6, 0.2227781, 0.9567281),
        (3, 22616, 2.7356e-05, 3.8760e-04),
        (50, 100, 0.3983211, 0.6016789),
    ],
)
def test_the_interval_of_clopper_and_pearson(
    failures: int, tries: int, low: float, high: float
) -> None:
    assert interval(failures, tries) == pytest.approx((low, high), rel=2e-4)


def test_the_ends_of_the_interval() -> None:
    assert interval(0, 16) == (0.0, most_without(16))
    assert interval(16, 16) == (1 - most_without(16), 1.0)
    with pytest.raises(ValueError, match="3 of 2"):
        interval(3, 2)


@pytest.mark.parametrize("rate", [0.003, 0.02, 0.1, 0.5])
def test_the_bounds_hold_in_at_least_95_of_100_cases(rate: float) -> None:
    draws = seeded(20261115)
    tries, cases = 100, 2000
    counts = [sum(draws.random() < rate for _ in range(tries)) for _ in range(cases)]
    bounds = {count: interval(count, tries) for count in set(counts)}

    held = sum(bounds[count][0] <= rate <= bounds[count][1] for count in counts)

    assert held >= 0.94 * cases  # 95 %, less two standard errors of this simulation


def test_fewer_than_one_in_is_wrong_at_most_once_in_twenty() -> None:
    draws = seeded(7)
    cases, tries = 4000, 60
    rate = most_without(tries)  # the rate at which the statement is just about to be wrong

    said = sum(all(draws.random() >= rate for _ in range(tries)) for _ in range(cases))

    assert said <= 0.057 * cases  # 5 %, and two standard errors


@pytest.mark.parametrize(
    ("counts", "p"),
    [
        ((4, 6, 0, 16), 15 / 7315),
        ((3, 4, 1, 4), 0.4857142857),  # Fisher's lady and her tea
        ((1, 10, 11, 14), 0.0027594562),
        ((0, 8, 0, 8), 1.0),
    ],
)
def test_known_values_of_fishers_test(counts: tuple[int, int, int, int], p: float) -> None:
    assert chance(*counts) == pytest.approx(p)
    assert chance(*counts[2:], *counts[:2]) == pytest.approx(p)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.6])
def test_chance_alone_is_called_a_difference_at_most_once_in_twenty(rate: float) -> None:
    draws = seeded(42)

    def count(tries: int) -> int:
        return sum(draws.random() < rate for _ in range(tries))

    alarms = sum(chance(count(16), 16, count(16), 16) <= 0.05 for _ in range(1000))

    assert alarms <= 50
