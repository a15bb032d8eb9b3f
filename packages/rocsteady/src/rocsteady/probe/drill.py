"""A drill: an ordinary run with faults in it, and what came of each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_regular

from rocsteady.hangs.heartbeat_pages import read_pages
from rocsteady.model import FailureKind, IntentKind, Next, RunOutcome, Value
from rocsteady.probe.faults import HIGHEST, Fault, for_inside
from rocsteady.run.job.resume import Launch
from rocsteady.run.observer import ObservedRun, Observer
from rocsteady.screens.probe import FaultResult
from rocsteady.store.values import DecisionRecord, RunStory

PAST = 50  # steps after the last fault, after which there is nothing more to see
SLOW_PAST, SLOW = 5, 120.0  # the same where that many steps took so many seconds
FIRED_LIMIT = 64 * 1024  # bytes


class Fired(Value, frozen=True, kw_only=True):
    """A fault that was brought about, as the process that did it told."""

    at: float  # by the wall clock
    step: int  # that was being made
    run: str  # of the attempt: NAME-PID-NUMBER

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        return int(self.run.rpartition("-")[2])


class LossSeen(Value, frozen=True, kw_only=True):
    """What the pages of an attempt told of the loss."""

    at: float  # when it was seen not to be finite, by the wall clock
    lasting: bool  # it was so when it was last looked at


class FaultInjection(Observer):
    """Has the training bring faults about, and ends the run when the last one is behind it."""

    def __init__(self, faults: tuple[Fault, ...], marks: Path) -> None:
        """Take a folder that remembers which faults there were."""
        self._faults, self._marks = faults, marks
        self.went_on_from: dict[int, int] = {}  # by attempt: steps that it did not have to make
        self.losses: dict[int, LossSeen] = {}  # by attempt

    def launching(self, run: ObservedRun, launch: Launch) -> Launch:
        """Tell the training process of the faults."""
        self.went_on_from[run.attempt] = run.steps_before
        found = for_inside(self._faults, before=run.steps_before, folder=self._marks)
        return msgspec.structs.replace(
            launch, environment={**launch.environment, wire.FAULTS: found}
        )

    def ticked(self, run: ObservedRun) -> None:
        """Look at the pages of the attempt that is under way."""
        pages = read_pages(run.pages) if run.pages else ()
        spoilt = [beat.not_finite > beat.finite for beat in pages]
        if any(beat.not_finite for beat in pages):
            first = self.losses.get(run.attempt)
            at = first.at if first else time.time()
            self.losses[run.attempt] = LossSeen(at=at, lasting=any(spoilt))
        step = run.steps_before + max((beat.step for beat in pages), default=0)
        if not run.is_over and self._is_behind(step):
            run.end("all faults have been injected; the drill ends here.")

    def _is_behind(self, step: int) -> bool:
        """Tell whether every fault was long ago, or should have been."""
        fired = read_fired(self._marks, len(self._faults))
        due = [
            fired[number].step if number in fired else _due(fault)
            for number, fault in enumerate(self._faults)
        ]
        past = step - max(due)
        since = time.time() - max((each.at for each in fired.values()), default=0.0)
        return past >= PAST or (past >= SLOW_PAST and since >= SLOW)


def read_fired(folder: Path, count: int) -> dict[int, Fired]:
    """Return which faults were brought about, by number."""
    found = {}
    for number in range(count):
        with contextlib.suppress(OSError, msgspec.MsgspecError):  # not yet, or just being written
            path = folder / f"{number}{wire.FIRED_SUFFIX}"
            content = read_regular(path, FIRED_LIMIT, follow=False)
            found[number] = msgspec.json.decode(content, type=Fired)
    return found


def _due(fault: Fault) -> int:
    """Return the step of a fault; for a call of an operator nobody knows it."""
    return HIGHEST if "::" in fault.place else fault.at


def results(
    faults: Sequence[Fault],
    fired: Mapping[int, Fired],
    story: RunStory,
    *,
    went_on_from: Mapping[int, int],
    losses: Mapping[int, LossSeen],
) -> tuple[FaultResult, ...]:
    """Say of each fault what came of it."""
    failures = {row.attempt: row.failure.kind for row in story.failures}
    to_blame = {
        attempt: _to_blame(kind, faults, fired, attempt) for attempt, kind in failures.items()
    }
    found = []
    for number, fault in enumerate(faults):
        if number not in fired:
            found.append(FaultResult(fault=fault.spelt, fired=False))
            continue
        attempt, step = fired[number].attempt, fired[number].step
        plain = FaultResult(fault=fault.spelt, fired=True, step=step, attempt=attempt)
        if to_blame.get(attempt) == number:
            result = _failed(plain, failures[attempt], fired[number], story, went_on_from)
        else:
            seen = losses.get(attempt) if fault.kind == "nan" else None
            result = _not_failed(plain, fired[number], story, seen)
        found.append(result)
    return tuple(found)


def _to_blame(
    kind: str, faults: Sequence[Fault], fired: Mapping[int, Fired], attempt: int
) -> int | None:
    """Return the fault that an attempt failed of: the last one, or the NaN that is named."""
    here = sorted((it.at, number) for number, it in fired.items() if it.attempt == attempt)
    numbers = [number for _, number in here]
    nans = [
        number
        for number in numbers
        if faults[number].kind == "nan" and kind == FailureKind.NAN_LOSS
    ]
    return next(reversed(nans or numbers), None)


def _failed(
    plain: FaultResult,
    kind: str,
    fired: Fired,
    story: RunStory,
    went_on_from: Mapping[int, int],
) -> FaultResult:
    """Tell of a fault that an attempt failed of."""
    decision = next((each for each in story.decisions if each.attempt == fired.attempt), None)
    later = [each for each in story.attempts if each.number > fired.attempt]
    passed = any((each.last_step or 0) >= fired.step for each in later)
    return msgspec.structs.replace(
        plain,
        seen_after=max(0.0, _seen_at(story, fired.attempt) - fired.at),
        called=kind,
        done=_in_words(decision),
        went_on_from=went_on_from.get(fired.attempt + 1),
        survived=passed or (bool(later) and story.run.outcome is RunOutcome.DONE),
    )


def _not_failed(
    plain: FaultResult, fired: Fired, story: RunStory, seen: LossSeen | None
) -> FaultResult:
    """Tell of a fault that ended nothing."""
    made = next((it.last_step for it in story.attempts if it.number == fired.attempt), None)
    passed = (made or 0) >= fired.step
    went_on = "the script continued" if passed else "none"
    if seen is None:
        return msgspec.structs.replace(plain, done=went_on, survived=passed)
    return msgspec.structs.replace(
        plain,
        seen_after=max(0.0, seen.at - fired.at),
        called=FailureKind.NAN_LOSS,
        done=went_on,
        survived=passed and not seen.lasting,
    )


def _seen_at(story: RunStory, attempt: int) -> float:
    """Return when it was known: by the verdict, or with the end of the process."""
    kills = [intent for intent in story.intents if intent.kind is IntentKind.KILL]
    verdicts = [intent.at for intent in kills if intent.attempt == attempt]
    ended = [each.ended for each in story.attempts if each.number == attempt and each.ended]
    return min([*verdicts, *ended], default=0.0)


def _in_words(decision: DecisionRecord | None) -> str:
    if decision is None:
        return "none"
    if decision.ends:
        return "gave up"
    if decision.changes_nothing:
        return "retried without changes"
    begins = decision.what == Next.AGAIN_FROM_SCRATCH.value
    return "restarted from the start" if begins else decision.what
