"""What the attempts so far say: which remedies stay, which are reverted, what is to be answered.

A remedy stays if the run came further with it, or as far and then failed in another way. One that
changed nothing is reverted. One that made the run fail earlier is reverted too, and the failure
that it was meant for is answered in another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from rocsteady.failures.difference import changed
from rocsteady.failures.situation import Situation
from rocsteady.model import FailedAttempt, FailureKind, Fingerprint, Strategy

WITHOUT_CHANGE = ("", "retry", "fresh-process")  # remedies that change no setting
# What a change of ours can bring about in a script that would not fail so by itself.
BROUGHT_ABOUT = frozenset(
    {FailureKind.SCRIPT_ERROR, FailureKind.NO_GPU_VISIBLE, FailureKind.WRONG_DEVICE_MASK}
)


class Reach(NamedTuple):
    """How far an attempt came, and with what."""

    strategy: Strategy
    steps: int  # where it ended, counted from the job's beginning
    made: int  # by itself

    @classmethod
    def between(cls, strategy: Strategy, first: int | None, last: int | None) -> Reach:
        """Return that of an attempt that went on from a step, and came to another."""
        return cls(strategy, last or 0, max(0, (last or 0) - (first or 0)))


def made_difference(attempts: Sequence[Reach]) -> bool:
    """Return whether the settings of the last attempt have shown that they help.

    To get further is not enough: a run that fails now and then does so with any setting. They made
    more steps than any attempt without them, or passed a step at which two of those failed.
    """
    without = [each for each in attempts if each.strategy != attempts[-1].strategy]
    with_them = [each for each in attempts if each.strategy == attempts[-1].strategy]
    if not without or not any(each.steps for each in attempts):  # nothing to compare
        return bool(without)
    if max(each.made for each in with_them) > max(each.made for each in without):
        return True
    ends = [each.steps for each in without]
    furthest = max(each.steps for each in with_them)
    return any(ends.count(step) > 1 and furthest > step + 1 for step in ends)


class LadderPosition(NamedTuple):
    """How a run stands after an attempt."""

    strategy: Strategy  # with the remedies that stay
    current_failure: Fingerprint  # the one that is to be answered next
    reverted: str  # the remedy of the last attempt, if it is undone


def standing_of(situation: Situation) -> LadderPosition:
    """Judge every attempt in turn; the last judgement is how the run stands."""
    *_, (_, _, standing) = _judged(situation)
    return standing


def strategies_tried(situation: Situation) -> list[Strategy]:
    """Return the strategies that were tried against the failure that is to be answered."""
    fingerprint = situation.failure.fingerprint
    return [
        attempt.strategy
        for attempt, answered, _ in _judged(situation)
        if is_same(fingerprint, answered) or is_same(fingerprint, attempt.failure)
    ]


def is_same(one: Fingerprint, other: Fingerprint) -> bool:
    """Compare two failures, at whatever step they happened."""
    return (one.kind, one.place) == (other.kind, other.place)


def _judged(situation: Situation) -> Iterator[tuple[FailedAttempt, Fingerprint, LadderPosition]]:
    """Yield each attempt, the failure that it was an answer to, and how the run stood after it."""
    before, *others = situation.tried
    standing = _after_progress(before, LadderPosition(before.strategy, before.failure, ""))
    yield before, before.failure, standing
    for attempt in others:
        strategy, answered, reverted = standing
        reverted = reverted if attempt.remedy in WITHOUT_CHANGE else attempt.remedy
        if not set(changed(strategy, attempt.strategy)) - set(situation.ineffective):
            undone = reverted if attempt.strategy != strategy else ""
            before, standing = attempt, LadderPosition(strategy, attempt.failure, undone)
        elif _has_helped(before, attempt):
            before, standing = attempt, LadderPosition(attempt.strategy, attempt.failure, "")
        else:
            standing = LadderPosition(strategy, answered, reverted)
        standing = _after_progress(attempt, standing)
        yield attempt, answered, standing


def _after_progress(attempt: FailedAttempt, standing: LadderPosition) -> LadderPosition:
    """Skip no checkpoint once there is progress: newer ones were written since."""
    if not attempt.progressed:
        return standing
    strategy = msgspec.structs.replace(standing.strategy, checkpoints_back=0)
    return standing._replace(strategy=strategy)


def _has_helped(before: FailedAttempt, after: FailedAttempt) -> bool:
    """Return whether a remedy did something for the run."""
    if after.progressed:
        return True
    if after.failure.kind in BROUGHT_ABOUT:
        return False
    another = not is_same(before.failure, after.failure)
    return after.steps > before.steps or (another and after.steps == before.steps)
