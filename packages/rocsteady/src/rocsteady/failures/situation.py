"""All that the ladder looks at: what failed, where, under what strategy, after what history.

What the attempts so far say: a remedy stays if the run came further with it, or as far and then
failed in another way. One that changed nothing is reverted. One that made the run fail earlier is
reverted too, and the failure that it was meant for is answered in another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from rocsteady.doctor.knowledge.failures import Component, Nature
from rocsteady.doctor.knowledge.values import Fix
from rocsteady.doctor.machine.machine import Machine
from rocsteady.failures.difference import changed
from rocsteady.model import (
    BatchSplit,
    FailedAttempt,
    Failure,
    FailureKind,
    Fingerprint,
    LoaderFacts,
    Strategy,
    Value,
)

NEEDS = ("gpu", "rocm", "rocr")  # what a remedy may have no effect without

WITHOUT_CHANGE = ("", "retry", "fresh-process")  # remedies that change no setting
# What a change of ours can bring about in a script that would not fail so by itself.
BROUGHT_ABOUT = frozenset(
    {FailureKind.SCRIPT_ERROR, FailureKind.NO_GPU_VISIBLE, FailureKind.WRONG_DEVICE_MASK}
)


class Budget(Value, frozen=True, kw_only=True):
    """How many attempts a run may cost without progress; what clears up by itself costs none."""

    tries: int = 8  # that end in the same kind of failure, since the last progress
    without_progress: int = 16  # in a row, whatever they end in


class Situation(Value, frozen=True, kw_only=True):
    """Where a run stands after an attempt failed."""

    failure: Failure
    nature: Nature
    clears: bool = False  # it can clear up by itself
    component: Component = Component.UNKNOWN
    person: Fix | None = None  # what somebody must do, where nobody else can
    strategy: Strategy  # that failed
    tried: tuple[FailedAttempt, ...]  # oldest first; the last is the one that failed
    machine: Machine
    variables: dict[str, str] = msgspec.field(default_factory=dict)  # as the user has them
    loader: LoaderFacts | None = None  # None: no DataLoader was seen
    batch_split: BatchSplit | None = None  # None: not seen to train through rocsteady_train.Loop
    precision: str = ""  # the lowest that the script computed in: fp32, bf16, fp16; "": not known
    can_resume: bool = False
    checkpoints: int = 0  # whole ones that are known
    ranks: int = 1
    gpus: int = 0  # that the run sees
    gfx: tuple[str, ...] = ()  # of these; what the driver says of all cards, if this is empty
    arches: tuple[str, ...] = ()  # that torch has code for; what its files say, if this is empty
    ineffective: tuple[str, ...] = ()  # settings that had nothing to act on, or were refused inside
    crashed_machine: tuple[Strategy, ...] = ()  # under which it went down
    memory_full: bool = False  # nearly, that of a GPU, when the machine went down
    helped_before: tuple[str, ...] = ()  # remedies that mended this script on this machine
    allow: tuple[str, ...] = ()  # only these; empty: all
    deny: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # though they change numbers
    budget: Budget = Budget()

    @property
    def environment(self) -> dict[str, str]:
        merged = {**self.variables, **self.strategy.variables}
        return {name: value for name, value in merged.items() if value is not None}

    @property
    def gfx_names(self) -> tuple[str, ...]:
        """What the GPUs are, as far as that is known. Beside a card, the APU does not count."""
        gpus = self.machine.gpus.gpus
        cards = [gpu for gpu in gpus if not gpu.integrated] or gpus
        return self.gfx or tuple(dict.fromkeys(gpu.gfx for gpu in cards if gpu.gfx))

    def lacks(self, need: str) -> str:
        """Return why what only a GPU, ROCm or ROCr obeys has no effect here; "" if it may have."""
        torch = self.machine.torch
        if need == "rocr" and self.machine.system.os == "windows":
            return "ROCr, which reads the variable, does not exist on Windows"
        if need in ("rocm", "rocr") and torch is not None and torch.build != "rocm":
            return f"torch {torch.version} is not built for ROCm"
        if need and self.strategy.device == "cpu":
            return "the run does not use GPUs"
        return "no GPU was found" if need and not self.gpus else ""


class Refused(Value, frozen=True, kw_only=True):
    """Why a remedy is not right here; half a sentence."""

    why: str
    was_tried: bool = False
    needs_consent: bool = False


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
