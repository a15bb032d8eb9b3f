"""What a number of tries proves: bounds at 95 %, and whether two counts differ by more than chance.

All of it is exact, by the binomial and the hypergeometric distribution; nothing is approximated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

CONFIDENCE = 0.95
_HALVINGS = 60  # of an interval of length 1: below the precision of a float


def most_without(tries: int, confidence: float = CONFIDENCE) -> float:
    """Return the largest rate that agrees with no failure in so many tries."""
    return 1.0 if tries < 1 else -math.expm1(math.log(1 - confidence) / tries)


def fewer_than_one_in(tries: int, confidence: float = CONFIDENCE) -> int:
    """Return M of "fewer than 1 in M", after no failure in so many tries; 1 says nothing."""
    return math.floor(1 / most_without(tries, confidence))


@functools.lru_cache(maxsize=1024)
def interval(failures: int, tries: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the rates that agree with this count, by Clopper and Pearson.

    Without a failure only the upper end is open, and it has all of the doubt to itself.
    """
    if not 0 <= failures <= tries:
        raise ValueError(f"{failures} of {tries}")
    if failures == 0:
        return 0.0, most_without(tries, confidence)
    if failures == tries:
        return 1 - most_without(tries, confidence), 1.0
    doubt = (1 - confidence) / 2
    # At the lower end as many failures or more, at the upper one as many or fewer, are that rare.
    lower = _root(lambda rate: 1 - _at_most(failures - 1, tries, rate) < doubt)
    upper = _root(lambda rate: _at_most(failures, tries, rate) > doubt)
    return lower, upper


def chance(failures: int, tries: int, other_failures: int, other_tries: int) -> float:
    """Return p of Fisher's exact test, two-sided: how often chance alone differs that much."""
    total, wrong = tries + other_tries, failures + other_failures
    ways = [
        math.comb(tries, here) * math.comb(other_tries, wrong - here)
        for here in range(max(0, wrong - other_tries), min(tries, wrong) + 1)
    ]
    seen = math.comb(tries, failures) * math.comb(other_tries, other_failures)
    return sum(way for way in ways if way <= seen) / math.comb(total, wrong)


def _at_most(failures: int, tries: int, rate: float) -> float:
    """Return how likely it is to see so many failures or fewer."""
    if rate <= 0:
        return 1.0
    if rate >= 1:
        return 1.0 if failures >= tries else 0.0
    wrong, right = math.log(rate), math.log1p(-rate)
    return min(
        1.0,
        math.fsum(
            math.exp(_log_ways(tries, count) + count * wrong + (tries - count) * right)
            for count in range(failures + 1)
        ),
    )


def _log_ways(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _root(is_below: Callable[[float], bool]) -> float:
    """Return the rate up to which a condition holds."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2
