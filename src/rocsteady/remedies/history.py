"""What the attempts so far say: which remedies are kept, which are undone, what is to be answered.

A remedy is kept if the run came further with it, or as far and then failed in another way. One that
changed nothing is taken back. One that made the run fail earlier is taken back too, and the failure
that it was meant for is answered in another way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from rocsteady.model import Fingerprint, Strategy
from rocsteady.remedies.difference import changed
from rocsteady.remedies.situation import FailedAttempt, Situation

UNCHANGED = ("", "retry", "fresh-process")  # what leads to an attempt without changing a setting
# What a change of ours can bring about in a script that would not fail so by itself.
BROUGHT_ABOUT = frozenset({"script-error", "no-gpu-visible", "wrong-device-mask"})


class Standing(NamedTuple):
    """Where the ladder stands after an attempt."""

    kept: Strategy
    answering: Fingerprint  # the failure that comes next to be answered
    taken_back: str  # the remedy of the last attempt, if it is undone


def stand(situation: Situation) -> Standing:
    """Judge every attempt in turn; the last judgement is where things stand."""
    *_, (_, _, standing) = _walk(situation)
    return standing


def strategies_tried(situation: Situation) -> list[Strategy]:
    """Return the strategies that were tried against the failure that is to be answered."""
    print_ = situation.failure.fingerprint
    return [
        entry.strategy
        for entry, answered, _ in _walk(situation)
        if same(print_, answered) or same(print_, entry.failure)
    ]


def same(one: Fingerprint, other: Fingerprint) -> bool:
    """Tell the same failure, at whatever step."""
    return (one.kind, one.place) == (other.kind, other.place)


def _walk(situation: Situation) -> Iterator[tuple[FailedAttempt, Fingerprint, Standing]]:
    """Yield each attempt, the failure that it was an answer to, and where things stood after it."""
    before, *others = situation.tried
    standing = _fresh(before, Standing(before.strategy, before.failure, ""))
    yield before, before.failure, standing
    for entry in others:
        answered, kept = standing.answering, standing.kept
        taken_back = standing.taken_back if entry.remedy in UNCHANGED else entry.remedy
        if not set(changed(kept, entry.strategy)) - set(situation.no_effect):
            undone = taken_back if entry.strategy != kept else ""
            before, standing = entry, Standing(kept, entry.failure, undone)
        elif _moved(before, entry):
            before, standing = entry, Standing(entry.strategy, entry.failure, "")
        else:
            standing = Standing(kept, answered, taken_back)
        standing = _fresh(entry, standing)
        yield entry, answered, standing


def _fresh(entry: FailedAttempt, standing: Standing) -> Standing:
    """Pass over no checkpoint once there is progress: newer ones were written since."""
    if not entry.progressed:
        return standing
    return standing._replace(kept=msgspec.structs.replace(standing.kept, checkpoints_back=0))


def _moved(before: FailedAttempt, after: FailedAttempt) -> bool:
    """Tell whether a remedy did something for the run."""
    if after.progressed:
        return True
    if after.failure.kind in BROUGHT_ABOUT:
        return False
    another = not same(before.failure, after.failure)
    return after.steps > before.steps or (another and after.steps == before.steps)
