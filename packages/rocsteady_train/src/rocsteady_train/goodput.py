"""What failures cost, and how often to save.

Failures come at random, one in ``between`` seconds on average (Poisson). A save makes the training
wait for ``stall`` seconds; a failure costs ``again`` seconds until training goes on, and all that
was done since the last save. Both formulas are exact, not Young's and Daly's first terms.
"""

from __future__ import annotations

import math


def best_interval(stall: float, between: float) -> float:
    """Return the seconds of work between two saves that lose least: M (1 + W0(-e^(-1 - C/M)))."""
    if stall <= 0:
        return 0.0
    return between * (1 + _w0_just_above(stall / between))


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


def _w0_just_above(x: float) -> float:
    """Return Lambert's W0(-e^(-1-x)), by Newton's method from the branch point's series.

    With W = -1 + d the equation is x = -ln(1 - d) - d, in which no digits cancel for small x.
    """
    d = min(math.sqrt(2 * x), 0.999)
    for _ in range(50):
        value = -math.log1p(-d) - d - x
        slope = d / (1 - d)
        following = d - value / slope
        if not 0 < following < 1:
            following = (d + (1.0 if following >= 1 else 0.0)) / 2
        if abs(following - d) <= 1e-14 * d:
            d = following
            break
        d = following
    return d - 1
