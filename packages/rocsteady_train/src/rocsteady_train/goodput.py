"""What failures cost, and how often to save.

Failures come at random, one in ``between`` seconds on average (Poisson). A save makes the training
wait for ``stall`` seconds; a failure costs ``again`` seconds until training goes on, and all that
was done since the last save. The share is exact; the interval gives 99 % of the best share.
"""

from __future__ import annotations

import math


def best_interval(stall: float, between: float) -> float:
    """Return the seconds of work between two saves that lose least: Daly's formula of 2006."""
    half = stall / (2 * between)
    if half >= 1:
        return between
    return 2 * between * math.sqrt(half) * (1 + math.sqrt(half) / 3 + half / 9) - stall


def share_of_work(interval: float, stall: float, again: float, between: float) -> float:
    """Return which share of the time is work that counts."""
    try:
        spent = between * math.exp(again / between) * math.expm1((interval + stall) / between)
    except OverflowError:  # more than e^709 failures in a row to go through
        return 0.0
    return interval / spent


def between_failures(seconds: float, failures: int, *, prior: float) -> float:
    """Estimate the time between failures from what was seen, starting from one in ``prior``."""
    return (prior + seconds) / (1 + failures)
