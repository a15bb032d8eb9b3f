"""What the events of a run add up to: what was tried, how far it came, how often it failed.

A fold, and nothing besides: whoever reads the journal of a run knows what its supervisor knew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.failures.situation import Reach, made_difference
from rocsteady.model import (
    BatchSplit,
    Decision,
    FailedAttempt,
    Failure,
    FailureKind,
    Fingerprint,
    Outcome,
    Strategy,
)
from rocsteady.run.attempt.progress import ProgressCounts
from rocsteady.run.context import HangPlace, hang_place
from rocsteady.store.values import (
    AttemptRecord,
    AttemptResult,
    Event,
    Incident,
    NamedFailure,
)

MAX_ATTEMPTS_PER_CHECKPOINT = 3  # attempts from one checkpoint of which none gets further
MAX_FROM_ONE_START = 8  # attempts of which each gets a little further, and none to the next save
SAVE_EARLIER_AFTER = 2  # of them


@dataclass
class Starts:
    """The attempts in a row that failed and had started from the same checkpoint."""

    checkpoint: tuple[str, str] | None = None  # ours, and that of the script; None: no attempt yet
    made: list[int] = field(default_factory=list)  # steps of each
    without_progress: int = 0  # attempts since one of them got further than all before
    a_little_further: int = 0  # attempts of them that did

    @property
    def are_enough(self) -> bool:
        ours = bool(self.checkpoint and self.checkpoint[0])
        stuck = ours and self.without_progress >= MAX_ATTEMPTS_PER_CHECKPOINT
        return stuck or self.a_little_further >= MAX_FROM_ONE_START


@dataclass
class History:
    """A run so far. Only ``add`` changes it."""

    strategy: Strategy  # in force
    remedy: str = ""  # that led to it; "": nothing, or another option
    answered: str = ""  # the kind of failure that the remedy is for
    changed: bool = False  # the strategy, by that remedy
    last: AttemptRecord | None = None  # that has ended
    failure: Failure | None = None  # its, if it has one
    decided: bool = True  # what comes after it
    attempts: int = 0  # that have ended since the run began or somebody resumed what had ended
    progressed: bool = False  # the last one came further than all before it
    tried: list[FailedAttempt] = field(default_factory=list)
    given_up: int = 0  # how many of these were on options that were given up
    fallen_to: list[int] = field(default_factory=list)  # options of the plan, in their order
    reached: list[Reach] = field(default_factory=list)
    split: BatchSplit | None = None  # that was seen last
    starts: Starts = field(default_factory=Starts)
    save_after: int | None = None  # steps, to get past where others ended
    saved_after: int | None = None  # the same before the last attempt
    # Failures alike, each further: steps that were made, and seconds without any.
    rhythm: list[tuple[int, float]] = field(default_factory=list)
    rhythm_of: tuple[str, Strategy] | None = None  # their kind, and with what they failed
    stepped: bool = False  # in any attempt
    tries: int = 0  # without progress
    waited: float = 0.0  # seconds without progress, waits included
    repeats: bool = False  # the last failure was like the one before it, without progress
    announced: bool = False  # a wait for it
    missed: set[str] = field(default_factory=set)  # paths that were there once
    avoid: tuple[tuple[str, float], ...] = ()  # checkpoints that did not lead on
    hung: HangPlace | None = None  # where the last attempt did
    hangs: dict[str, int] = field(default_factory=dict)  # how often, by the place
    incidents: int = 0
    crashes: int = 0  # attempts that failed otherwise, and were followed by another
    option_began: float | None = None  # the first attempt on the option of the plan
    option_failures: int = 0
    _furthest: ProgressCounts = field(default_factory=ProgressCounts)
    _began_with: set[str] = field(default_factory=set)  # checkpoints
    _kind: str = ""  # of the last failure, for the waits
    _saved: bool = False  # the progress of the last attempt
    _next_wait: float = 0.0  # seconds that were decided last
    _incident_of: int = 0  # the attempt
    _ended_run: bool = False  # by what was decided last

    def add(self, event: Event) -> None:
        """Take one more event into account."""
        if isinstance(event, AttemptRecord):
            self._began(event)
            if event.result is not None:
                self._ended(event, event.result)
        elif isinstance(event, Incident):
            self._hung(event)
        elif isinstance(event, NamedFailure):
            self._failed(event.failure)
        else:
            self._decided(event.decision)

    @property
    def result(self) -> AttemptResult:
        return (self.last.result if self.last else None) or AttemptResult()

    @property
    def clears(self) -> bool:
        """Whether the last failure can clear up by itself."""
        return self.failure is not None and load_failures().kinds[self.failure.kind].clears

    @property
    def saves_earlier(self) -> bool:
        """Whether the next attempt saves earlier than the last one."""
        return self.save_after != self.saved_after

    @property
    def is_routine(self) -> bool:
        """Whether the last attempt ended as was announced."""
        return len(self.rhythm) > ROUTINE_AFTER

    @property
    def has_helped(self) -> bool:
        """Whether the remedy in force has just shown that it helps."""
        return self.progressed and self.changed and made_difference(self.reached)

    @property
    def crash(self) -> Failure | None:
        """The last failure, unless it is a hang."""
        hung = self.last is not None and self._incident_of == self.last.number
        return None if hung else self.failure

    def _began(self, attempt: AttemptRecord) -> None:
        self.strategy = attempt.strategy
        if self._ended_run:  # somebody has begun anew what had ended
            self.attempts = self.tries = 0
            self.waited, self.announced, self.remedy = 0.0, False, ""
            self.starts, self._ended_run = Starts(), False
        if self.option_began is None:
            self.option_began = attempt.started
        if self._next_wait and self.last is not None:
            since = self.last.started + self.result.seconds
            self.waited += max(0.0, min(self._next_wait, attempt.started - since))
            self._next_wait = 0.0

    def _ended(self, attempt: AttemptRecord, result: AttemptResult) -> None:
        self.last, self.failure, self.hung, self.decided = attempt, None, None, False
        self.attempts += 1
        self.progressed = self._came_further(attempt, result)
        self._began_with.add(result.start)
        self.reached.append(Reach.between(attempt.strategy, result.base, attempt.last_step))
        self.split = result.batch_split or self.split
        self.saved_after = self.save_after
        saves = result.saves - bool(result.unsaved)
        self._saved = saves > 0 or not result.start or not result.heard
        if attempt.failed and self.progressed and self._saved:
            self.tries, self.waited = 0, 0.0
        else:
            self.tries += attempt.failed
            self.waited += result.seconds

    def _came_further(self, attempt: AttemptRecord, result: AttemptResult) -> bool:
        """Return whether an attempt came further than all before it.

        That is a higher step of its own count, or a start from another checkpoint than all before
        it and a save. Repeated steps are not progress.
        """
        further = self._furthest.passes(result.own_step, result.own_counts)
        if result.start and result.saves and not result.started_over:
            further = further or result.start not in self._began_with
        if result.heard and not result.stepped:
            further = False  # it only read what others have saved
        return further or (attempt.outcome is Outcome.BY_ITSELF and not attempt.failed)

    def _hung(self, incident: Incident) -> None:
        self.incidents, self._incident_of = self.incidents + 1, incident.attempt
        if incident.place and self.last is not None:
            self.hung = hang_place(incident, self.last.last_step)
            if incident.cause:
                self.hangs[incident.cause] = self.hangs.get(incident.cause, 0) + 1

    def _failed(self, failure: Failure) -> None:
        if self.last is None:
            return
        result, self.failure = self.result, failure
        self.tried.append(
            FailedAttempt(
                strategy=self.strategy,
                failure=failure.fingerprint,
                remedy=self.remedy,
                progressed=self.progressed,
                clears=self.clears,
                steps=self.last.last_step or 0,
            )
        )
        self.option_failures += 1
        self.repeats = not (self.progressed and self._saved) and failure.kind == self._kind
        self.announced = self.announced and self.repeats
        self.stepped, self._kind = self.stepped or result.stepped, failure.kind
        if failure.missing:
            self.missed.add(failure.missing)
        self._count_start(result)
        self._count_rhythm(failure, result)

    def _count_start(self, result: AttemptResult) -> None:
        """Count the attempts from one checkpoint; what is waited for is not its fault."""
        if self.clears:
            return
        if self.starts.checkpoint != (result.start, result.read):
            self.starts = Starts(checkpoint=(result.start, result.read))
        starts = self.starts
        starts.made.append(result.made)
        starts.without_progress = 0 if self.progressed else starts.without_progress + 1
        starts.a_little_further += self.progressed
        if len(starts.made) >= SAVE_EARLIER_AFTER and min(starts.made):
            least = max(1, min(starts.made) // 2)
            self.save_after = min(least, self.save_after or least)

    def _count_rhythm(self, failure: Failure, result: AttemptResult) -> None:
        counts, alike = self.progressed and result.made > 0, (failure.kind, self.strategy)
        if not counts or alike != self.rhythm_of:
            self.rhythm = []
        self.rhythm_of = alike
        if counts:
            self.rhythm.append((result.made, result.seconds - result.progress_seconds))

    def _decided(self, decision: Decision) -> None:
        self.decided, self.avoid, self._next_wait = True, decision.avoid, decision.wait
        self.crashes += self.crash is not None and not decision.ends
        if decision.crashed is not None:
            down = Fingerprint(kind=FailureKind.MACHINE_WENT_DOWN)
            self.tried.append(FailedAttempt(strategy=decision.crashed, failure=down))
        if decision.tried is not None:
            self.tried, self.given_up = list(decision.tried), 0
        self._ended_run = decision.ends
        if decision.ends:
            return
        self.announced = self.announced or (decision.waits and decision.wait > 0)
        if decision.fallback:
            self.fallen_to.append(decision.fallback)
            self.given_up, self.option_failures = len(self.tried), 0
            self.option_began = None
        another = decision.strategy != self.strategy
        if decision.remedy or decision.fallback or another or decision.tried is not None:
            self.changed = another and not (decision.fallback or decision.asked)
            self.strategy, self.remedy = decision.strategy, decision.remedy
            failed = self.tried[-1].failure.kind if self.tried else ""
            self.answered = "" if decision.asked else failed


ROUTINE_AFTER = 3  # failures in a row with progress


def history_of(events: Iterable[Event], strategy: Strategy) -> History:
    history = History(strategy)
    for event in events:
        history.add(event)
    return history
