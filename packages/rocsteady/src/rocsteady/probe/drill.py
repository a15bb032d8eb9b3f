"""A drill: an ordinary run with faults in it, and what came of each."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_regular, read_tail

from rocsteady.doctor.facts import visible_to_a_run
from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.doctor.machine.machine import examined
from rocsteady.hangs.heartbeat_pages import read_pages
from rocsteady.model import FailureKind, IntentKind, Next, Outcome, RunOutcome, Value
from rocsteady.probe.sandbox_run import ON_STDERR, Sandbox, name_for
from rocsteady.probe.values import DrillResult, FaultResult
from rocsteady.run.checkpoints.resume import Launch
from rocsteady.run.job.done_when import matches
from rocsteady.run.job.values import Job
from rocsteady.run.observer import ObservedRun, Observer
from rocsteady.run.options import RunOptions, Timing
from rocsteady.run.telling.announcer import Screen
from rocsteady.store.user_folders import state_folder
from rocsteady.store.values import AttemptRecord, DecisionRecord, RunRecord
from rocsteady.typed_values import decode

KINDS = ("hang", "oom", "fault", "kill", "segv", "abort", "nan")
STEP, BACKWARD, LOADER = "step", "backward", "loader"
PLACES = (BACKWARD, LOADER, STEP)  # of a hang
HIGHEST = 10**12
_WRITTEN = re.compile(r"(?P<kind>[a-z]+)(?::(?P<place>[A-Za-z0-9_:.]+))?@(?P<at>[0-9]+)")
_OPERATOR = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?", re.ASCII)


class Fault(Value, frozen=True, kw_only=True):
    kind: str
    place: str  # one of PLACES, or an operator
    at: int  # the step, or the call of the operator
    spelt: str  # as it was written


def read_faults(text: str) -> tuple[Fault, ...]:
    """Read what a person wrote; raises ValueError with a sentence."""
    faults = tuple(_fault(word.strip()) for word in text.split(",") if word.strip())
    if not faults:
        raise ValueError("name at least one fault, such as kill@50")
    return faults


def not_tried(faults: Sequence[Fault]) -> tuple[str, ...]:
    """Name what a drill can bring about and this one did not."""
    tried = {(fault.kind, fault.place) for fault in faults}
    kinds = {fault.kind for fault in faults}
    hangs = [f"hang:{place}" for place in PLACES if ("hang", place) not in tried]
    return (*hangs, *(kind for kind in KINDS if kind != "hang" and kind not in kinds))


def for_inside(faults: Sequence[Fault], *, before: int, folder: Path) -> str:
    """Spell them for the training process, which has so many steps from its checkpoint."""
    ordered = [{"kind": fault.kind, "place": fault.place, "at": fault.at} for fault in faults]
    return json.dumps(
        {
            "version": wire.FAULTS_VERSION,
            "before": before,
            "folder": str(folder),
            "faults": ordered,
        }
    )


def _fault(word: str) -> Fault:
    written = _WRITTEN.fullmatch(word)
    if written is None:
        raise ValueError(f"{word!r} is not a fault; write it as kill@500 or hang:backward@200")
    kind, place, at = written["kind"], written["place"], int(written["at"])
    if kind not in KINDS:
        raise ValueError(f"unknown fault {kind!r}; known faults: {', '.join(KINDS)}")
    if not 0 < at <= HIGHEST:
        raise ValueError(f"{word!r}: steps and calls are counted from 1")
    if place is None:
        place = BACKWARD if kind == "nan" else STEP
    elif not (_OPERATOR.fullmatch(place) or (kind == "hang" and place in PLACES)):
        hangs = f" A hang can also be in {', '.join(PLACES)}." if kind == "hang" else ""
        raise ValueError(f"{word!r}: {place!r} is not an operator such as aten::mm.{hangs}")
    return Fault(kind=kind, place=place, at=at, spelt=word)


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
        return int(self.run.rpartition("-")[2])


class LossSeen(Value, frozen=True, kw_only=True):
    at: float  # when it was seen not to be finite, by the wall clock
    lasting: bool  # it was so when it was last looked at


class FaultInjection(Observer):
    """Has the training bring faults about, and ends the run when the last one is behind it."""

    def __init__(self, faults: tuple[Fault, ...], folder: Path) -> None:
        self._faults, self._folder = faults, folder
        self.went_on_from: dict[int, int] = {}  # by attempt: steps that it did not have to make
        self.losses: dict[int, LossSeen] = {}  # by attempt

    def launching(self, run: ObservedRun, launch: Launch) -> Launch:
        self.went_on_from[run.attempt] = run.steps_before
        found = for_inside(self._faults, before=run.steps_before, folder=self._folder)
        return msgspec.structs.replace(
            launch, environment={**launch.environment, wire.FAULTS: found}
        )

    def ticked(self, run: ObservedRun) -> None:
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
        fired = read_fired(self._folder, len(self._faults))
        due = [
            # Nobody knows the step of a call of an operator.
            fired[number].step if number in fired else HIGHEST if "::" in fault.place else fault.at
            for number, fault in enumerate(self._faults)
        ]
        past = step - max(due)
        since = time.time() - max((each.at for each in fired.values()), default=0.0)
        return past >= PAST or (past >= SLOW_PAST and since >= SLOW)


def read_fired(folder: Path, count: int) -> dict[int, Fired]:
    found = {}
    for number in range(count):
        with contextlib.suppress(OSError, msgspec.MsgspecError):  # not yet, or just being written
            path = folder / f"{number}{wire.FIRED_SUFFIX}"
            content = read_regular(path, FIRED_LIMIT, follow=False)
            found[number] = decode(content, type=Fired)
    return found


def results(
    faults: Sequence[Fault],
    fired: Mapping[int, Fired],
    story: RunRecord,
    *,
    went_on_from: Mapping[int, int],
    losses: Mapping[int, LossSeen],
) -> tuple[FaultResult, ...]:
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
    story: RunRecord,
    went_on_from: Mapping[int, int],
) -> FaultResult:
    decision = next((each for each in story.decisions if each.attempt == fired.attempt), None)
    later = [each for each in _counted(story) if each.number > fired.attempt]
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
    plain: FaultResult, fired: Fired, story: RunRecord, seen: LossSeen | None
) -> FaultResult:
    made = next((it.last_step for it in _counted(story) if it.number == fired.attempt), None)
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


def _counted(story: RunRecord) -> list[AttemptRecord]:
    """Return the attempts whose steps are kept."""
    return [each for each in story.attempts if each.outcome is not Outcome.STARTED_OVER]


def _seen_at(story: RunRecord, attempt: int) -> float:
    """Return when it was known: by the verdict, or with the end of the process."""
    kills = [intent for intent in story.intents if intent.kind is IntentKind.KILL]
    verdicts = [intent.at for intent in kills if intent.attempt == attempt]
    ended = [each.ended for each in story.attempts if each.number == attempt and each.ended]
    return min([*verdicts, *ended], default=0.0)


def _in_words(record: DecisionRecord | None) -> str:
    if record is None:
        return "none"
    decision = record.decision
    if decision.ends:
        return "gave up"
    if decision.changes_nothing:
        return "retried without changes"
    begins = decision.next is Next.AGAIN_FROM_SCRATCH and decision.remedy in ("", "retry")
    return "restarted from the start" if begins else decision.what


NAME = "drill"  # of the run
LOG_LIMIT = 64 * 1024  # bytes of the end of a log


class Drill(Sandbox):
    """What is learnt from faults of ours is not true of this machine: it has no memory."""

    def __init__(
        self,
        folder: Path,
        scratch: Path | None,
        say: Callable[[str], None],
        screen: Screen | None = None,
    ) -> None:
        own = name_for(folder)
        root = scratch / f"rocsteady-{own}" if scratch else state_folder() / "drills" / own
        super().__init__(folder, root, NAME, say, elsewhere="choose another with --scratch")
        self._screen = screen

    def carry_out(self, job: Job, faults: tuple[Fault, ...]) -> tuple[DrillResult, int | None]:
        run = self.lay_out(_checkpoints(job, self.folder))
        injection = FaultInjection(faults, run.fired)
        options = RunOptions(timing=Timing(quick_crash=timedelta(0)))
        supervisor, code = run.carry_out(
            job, injection, options, terminal=ON_STDERR, screen=self._screen
        )
        story = self.journal.story(NAME)
        if code and not supervisor.observed.stopped_by_user:
            for log in self.logs():
                run.refuse_blame(read_tail(log, LOG_LIMIT).decode(errors="replace"))
        fault_results = results(
            faults,
            read_fired(run.fired, len(faults)),
            story,
            went_on_from=injection.went_on_from,
            losses=injection.losses,
        )
        known = load_knowledge()
        result = DrillResult(
            command=job.command,
            faults=fault_results,
            can_resume=supervisor.can_resume,
            ended="ended after the last fault"
            if supervisor.observed.is_over
            else story.run.outcome.value,
            not_tried=not_tried(faults),
            on_gpu=bool(visible_to_a_run(examined(known, job.command), known).gpus),
            changed=self.changed(),
        )
        return result, code if supervisor.observed.stopped_by_user else None

    def logs(self) -> list[Path]:
        """Return the log of each attempt, the one last written to last."""
        runs = self.journal.place.folder / "runs" / NAME
        return sorted(runs.glob("attempt-*.log"), key=os.path.getmtime)


def _checkpoints(job: Job, folder: Path) -> Iterable[str]:
    """Name the checkpoints that there are: a drill begins at the beginning."""
    patterns = job.resume.checkpoints if job.resume else ()
    return [str(path) for pattern in patterns for path in matches(folder, pattern)]
