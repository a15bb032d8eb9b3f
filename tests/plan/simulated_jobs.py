"""Jobs whose true end is known, because they are made here. Nothing of rocsteady is imported.

A job has a pace that wanders, validation, warm-up, and failures that cost what they cost. On top of
that come troubles which no forecast is told of: drift over hours, somebody else's bursts, an hour
at a fraction of the speed, a card that gets warm. The ranges are ours, set around what
docs/benchmarks has of real runs: the noise of a step, 8 % from a trial to its run, 1 to 20 s to see
a failure.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import NamedTuple

NEVER = 100 * 365 * 86_400.0
HOUR, LONGEST_TRIAL = 3600.0, 300.0
SLICES = 400  # of a run; within one of them its speed is the same
PATIENCE = 50.0  # times as long as without trouble; who waits longer has given up


@dataclass(frozen=True)
class Truth:
    """One way to do a job, as it really is."""

    rate: float  # steps a second, when nothing disturbs it
    noise: float = 0.05  # of one step, as a logarithm
    between: float = NEVER  # seconds of work between two failures, on average
    again: float = 30.0  # seconds that a failure costs until training goes on
    interval: float | None = 300.0  # seconds of work between checkpoints; None: all is lost
    starting: float = 20.0
    works: bool = True
    drift: float = 0.05  # of the pace over hours, as a logarithm
    warms: float = 0.0  # share of the speed that is lost after ten minutes
    bursts: float = 0.0  # an hour, in which somebody else takes half of the machine for a while
    slow_hour: float = 1.0  # the speed in one hour of the run
    setup: float = 0.0  # seconds of work by hand
    dollars: float = 0.0  # an hour


class Reached(NamedTuple):
    """How far a run came, and what it took."""

    seconds: float
    steps: float
    failures: int
    done: bool


def drawn_truth(dice: random.Random, rate: float, **more: float | bool | None) -> Truth:
    """Draw the troubles of a job with this pace."""
    fails = dice.random() < 0.5
    found = {
        "noise": dice.uniform(0.01, 0.2),
        "between": HOUR * math.exp(dice.uniform(math.log(0.5), math.log(100))) if fails else NEVER,
        "again": dice.uniform(5, 90),
        "interval": dice.choice((60.0, 300.0, 900.0)),
        "starting": dice.uniform(3, 60),
        "drift": dice.uniform(0.0, 0.1),
        "warms": dice.choice((0.0, 0.0, dice.uniform(0, 0.08))),
        "bursts": dice.choice((0.0, 0.0, dice.uniform(0, 0.4))),
        "slow_hour": dice.uniform(0.3, 0.7) if dice.random() < 0.2 else 1.0,
    }
    return Truth(rate=rate, **{**found, **more})  # type: ignore[arg-type]


def trial_marks(dice: random.Random, truth: Truth, seconds: float) -> list[tuple[float, int]]:
    """Return when each step of a trial was over, from the start of its process.

    It takes longer where a step does, as a person would let it.
    """
    seconds = max(seconds, min(12 / truth.rate, LONGEST_TRIAL))
    at, marks = truth.starting * dice.uniform(0.9, 1.2), []
    offset = math.exp(dice.gauss(0.0, truth.drift))
    until = at + seconds
    warm = dice.randint(0, 6)
    step = 0
    while at < until and step < 4000:
        step += 1
        took = math.exp(dice.gauss(0.0, truth.noise)) / (truth.rate * offset)
        at += took * (2.0 if step <= warm else 1.0)
        marks.append((at, step))
    return marks


def carried_out(  # noqa: C901 - one loop over the time of a run
    dice: random.Random, truth: Truth, left: float, *, within: float = math.inf
) -> Reached:
    """Let a job run to its end, or for so many seconds, with all its troubles."""
    if not truth.works:
        return Reached(min(within, NEVER), 0.0, 0, done=False)
    slice_ = min(left / truth.rate / SLICES * 2, 600.0) + 1.0
    memory = math.exp(-slice_ / dice.uniform(600, 6 * HOUR))
    wander = dice.gauss(0.0, truth.drift)
    now, steps, saved, failures = truth.starting, 0.0, 0.0, 0
    worked, fails = 0.0, dice.expovariate(1 / truth.between)
    burst_until, whole = 0.0, left / truth.rate
    slow_from = dice.uniform(0, max(whole - HOUR, 1.0))
    while steps < left:
        if now >= min(within, PATIENCE * whole + 10 * HOUR):
            return Reached(min(now, within), steps, failures, done=False)
        wander = wander * memory + dice.gauss(0.0, truth.drift) * math.sqrt(1 - memory**2)
        speed = truth.rate * math.exp(wander) * (1 - truth.warms * (now > 600))
        if now < burst_until:
            speed /= 2
        elif dice.random() < truth.bursts * slice_ / HOUR:
            burst_until = now + dice.uniform(60, 1200)
        if slow_from <= now < slow_from + HOUR:
            speed *= truth.slow_hour
        took = min(slice_, (left - steps) / speed, max(fails - worked, 1e-3))
        now, worked, steps = now + took, worked + took, steps + speed * took
        if truth.interval is not None and (worked % truth.interval) < took:
            saved = steps
        if worked >= fails and steps < left:
            failures += 1
            if truth.interval is None:
                saved = 0.0
            elif steps > saved:  # what was saved is up to an interval old
                saved = max(saved, steps - speed * truth.interval * dice.random())
            steps, now = saved, now + truth.again + truth.starting
            fails = worked + dice.expovariate(1 / truth.between)
    return Reached(now, left, failures, done=True)


def seen_failures(dice: random.Random, truth: Truth, seconds: float) -> int:
    """Return how many failures earlier runs of so many seconds have shown."""
    count, at = 0, dice.expovariate(1 / truth.between)
    while at < seconds:
        count, at = count + 1, at + dice.expovariate(1 / truth.between)
    return count
