"""What the journal holds, one class a table; and what is read back from it.

Times are seconds since 1970 by the wall clock: they must mean something after a reboot.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from msgspec import field

from rocsteady.model import (
    BatchSplit,
    Blame,
    Decision,
    Failure,
    Forecast,
    IntentKind,
    LoaderFacts,
    Observation,
    Outcome,
    RunEvent,
    RunOutcome,
    RunState,
    Strategy,
    Value,
    has_failed,
)


class Run(Value, frozen=True, kw_only=True):
    id: int
    name: str
    command: tuple[str, ...]
    job: dict[str, object]
    strategy: Strategy
    folder: str  # where its log and its evidence lie
    machine: str
    boot_id: str
    process: str  # the supervisor, as identity.py names it
    started: float
    ended: float | None = None
    outcome: RunOutcome = RunOutcome.NONE


class AttemptResult(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What came of an attempt, as far as a later decision may need it."""

    seconds: float = 0.0
    progress_seconds: float = 0.0  # from its first step to its last
    base: int = 0  # the step that it went on from
    checkpoint: tuple[str, float] | None = None  # that it went on from, and its time
    start: str = ""  # by which that is known again; "": from the beginning
    read: str = ""  # the same for the one that the script found by itself
    own_step: int | None = None  # by the script's own count
    own_counts: dict[str, int] = field(default_factory=dict)
    made: int = 0  # steps
    saves: int = 0  # how often it saved
    unsaved: str = ""  # a file that could not be saved
    heard: bool = False  # it has told how far it came
    stepped: bool = False  # and made a step of its own
    trained: bool = False  # all that done_when asks for was there, though it failed afterwards
    not_finite: int = 0  # the step by which its loss was NaN or infinite, to the end; 0: it was not
    started_over: str = ""  # why it is known that it did so in place of resuming
    wrote_checkpoint: bool = False
    all_cut_off: bool = False  # no checkpoint of the run is whole; they were moved aside
    ineffective: tuple[str, ...] = ()  # settings of its strategy that changed nothing
    ranks: int = 1
    loader: LoaderFacts | None = None
    precision: str = ""
    batch_split: BatchSplit | None = None


class KeptEnd(Value, frozen=True, kw_only=True):
    """How a run ended, as its account keeps it: the disk of the journal may be full."""

    process: str  # that ended it
    ended: float
    outcome: RunOutcome


CLOCK_SET = 300.0  # seconds; it takes no attempt longer to be recorded


class AttemptRecord(Value, frozen=True, kw_only=True):
    """One launch. Recorded when it starts, and again, whole, when it ends."""

    run: int
    number: int  # from 1
    strategy: Strategy
    boot_id: str
    started: float
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    outcome: Outcome = Outcome.NONE
    first_step: int | None = None  # where it went on from
    last_step: int | None = None
    result: AttemptResult | None = None  # None: it has not ended, or nobody saw how

    @property
    def failed(self) -> bool:
        return has_failed(self.outcome, self.exit_code)

    @property
    def seconds(self) -> float:
        """How long it took, whatever was done to the clock meanwhile."""
        by_clock = (self.ended or self.started) - self.started
        own = self.result.seconds if self.result else by_clock
        return own if abs(by_clock - own) > CLOCK_SET else by_clock


class Incident(Value, frozen=True, kw_only=True):
    """A moment when something was wrong, and where the evidence of it lies."""

    run: int
    attempt: int
    number: int  # from 1 in each run
    verdict: RunState
    why: str
    place: str  # where it was stuck; "" if that is not known
    quiet: float  # seconds without progress by then
    evidence: str  # a folder; "" if there is none
    at: float
    blame: Blame | None = None  # which rank holds up the others; None: there is only one

    @property
    def cause(self) -> str:
        """The line that holds up the run; "" if nobody can tell."""
        return self.blame.cause(self.place) if self.blame else self.place


class NamedFailure(Value, frozen=True, kw_only=True):
    run: int
    attempt: int
    failure: Failure
    evidence: str  # a folder; "" if there is none
    at: float


class DecisionRecord(Value, frozen=True, kw_only=True):
    run: int
    attempt: int  # after which it was decided; 0: before the first
    decision: Decision
    at: float


Event = AttemptRecord | Incident | NamedFailure | DecisionRecord


class MessageRecord(Value, frozen=True, kw_only=True):
    run: int | None = None
    text: str
    event: RunEvent = RunEvent.NOTE
    at: float


class Fate(Enum):
    MACHINE_WENT_DOWN = "the machine crashed during this"  # another boot
    KILLED = "the process was killed during this"  # this boot, and the process is gone
    UNDER_WAY = "under way"  # this boot, and the process lives
    UNKNOWN = "not known"  # another machine or container, or no boot id here


class Intent(Value, frozen=True, kw_only=True):
    """An intent: what is about to be done, written before it is."""

    id: int
    run: int | None
    attempt: int | None
    kind: IntentKind
    what: str
    machine: str
    boot_id: str
    process: str
    at: float
    outcome: str | None = None  # for people
    ended: float | None = None
    fate: Fate | None = None  # why it has no outcome

    @property
    def crashed_machine(self) -> bool:
        return self.fate is Fate.MACHINE_WENT_DOWN


def paused_between(intents: Iterable[Intent], begin: float, end: float) -> float:
    """Return for how many of these seconds the user had paused the run."""
    pauses = (
        (intent.at, end if intent.ended is None else intent.ended)
        for intent in intents
        if intent.kind is IntentKind.PAUSE
    )
    return sum(max(0.0, min(end, until) - max(begin, since)) for since, until in pauses)


SAVED_GAUGE = "saved step"  # the step of a checkpoint, in the bucket in which it was saved


class Gauge(Value, frozen=True, kw_only=True):
    """What was measured over a stretch of time, such as the loss or the temperature of a GPU."""

    least: float
    most: float
    mean: float
    count: int


class Bucket(Value, frozen=True, kw_only=True):
    run: int
    attempt: int
    start: float
    width: int  # seconds
    first_step: int
    last_step: int
    total: int | None = None  # steps in all, if that is known
    first_progress: float | None = None  # when a step was first and last seen to be made here
    last_progress: float | None = None
    quiet: float = 0.0  # longest time without progress, in seconds
    seconds_in: dict[str, float] = field(default_factory=dict)  # by phase
    seconds_as: dict[RunState, float] = field(default_factory=dict)
    gauges: dict[str, Gauge] = field(default_factory=dict)  # by name: run/attempt/gauges.py


class Sample(Value, frozen=True, kw_only=True):
    """What the supervisor sees at one moment; any number of them become buckets."""

    at: float
    step: int
    verdict: RunState
    quiet: float
    began_at: int = 0  # the step that the attempt resumed from; to get there is no progress
    total: int | None = None
    seconds_in: dict[str, float] = field(default_factory=dict)  # by phase, since the attempt began
    measured: dict[str, float] = field(default_factory=dict)  # since the last sample


class AttemptCost(Value, frozen=True, kw_only=True):
    attempt: int
    idle: float  # seconds from its last progress to the first of the next
    steps_redone: int
    redoing: float  # seconds, at the rate of the attempt that had done them


class RunRecord(Value, frozen=True, kw_only=True):
    version: int = 1
    run: Run
    attempts: tuple[AttemptRecord, ...]
    incidents: tuple[Incident, ...]
    failures: tuple[NamedFailure, ...]
    decisions: tuple[DecisionRecord, ...]
    messages: tuple[MessageRecord, ...]
    intents: tuple[Intent, ...]
    progress: tuple[Bucket, ...]
    losses: tuple[AttemptCost, ...]
    seconds_lost: float
    deadline: float | None = None
    forecast: Forecast | None = None
    unrecorded_since: float | None = None  # its end is known, and what came before it is not

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened to its attempts, oldest first."""
        events: list[tuple[int, Event]] = [(each.number, each) for each in self.attempts]
        events += [(incident.attempt, incident) for incident in self.incidents]
        events += [(failure.attempt, failure) for failure in self.failures]
        events += [(decision.attempt, decision) for decision in self.decisions]
        return tuple(event for _, event in sorted(events, key=lambda each: each[0]))


class RunLine(Value, frozen=True, kw_only=True):
    run: Run
    alive: bool | None  # its supervisor; None if that cannot be known from here
    attempts: int
    incidents: int
    step: int | None
    total: int | None
    rate: float | None  # steps a second of late
    last_progress: float | None
    seconds_left: float | None
    stalled: bool = False  # it runs, and has made no progress for longer than it usually takes
    deadline: float | None = None
    forecast: Forecast | None = None  # None: too little is known, or it has ended


MANY = 100  # stays from which on two may be dropped as outliers, not one
LAST_BUCKET = 63
NANOSECOND = 1e-9


class Stays(Value, frozen=True, kw_only=True):
    """How long the stays in one phase were, by bit length of their nanoseconds."""

    longest: float = 0.0  # seconds
    histogram: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.histogram)

    def usual_longest(self) -> float:
        """Return the longest stay in seconds, but for the one or two that may be outliers."""
        dropped = 1 if self.count < MANY else 2
        return self._but_for(dropped) if self.count > dropped else self.longest

    def _but_for(self, dropped: int) -> float:
        above = 0
        for bucket in range(len(self.histogram) - 1, -1, -1):
            above += self.histogram[bucket]
            if above > dropped:
                return min(2.0 ** min(bucket, LAST_BUCKET) * NANOSECOND, self.longest)
        return 0.0


class PhaseHistory(Value, frozen=True, kw_only=True):
    """What earlier runs of a script on a machine showed; the memory keeps it."""

    phases: dict[str, Stays] = field(default_factory=dict)
    device_wait: float = 0.0  # the longest known device wait that ended, in seconds
    locked_wait: float = 0.0  # the longest time that all seemed stuck in locks, and yet went on

    def of(self, phase: str) -> Stays:
        return self.phases.get(phase, Stays())


class LearnedRecord(PhaseHistory, frozen=True, kw_only=True):
    script: str
    machine: str
    at: float


class Deadly(Value, frozen=True, kw_only=True):
    """A way to run a script that crashed the machine."""

    machine: str
    script: str
    strategy: Strategy
    command: str  # for people
    at: float


class Helped(Value, frozen=True, kw_only=True):
    machine: str
    script: str
    failure: str  # its kind
    remedy: str
    run: str  # its name, for people
    at: float


class Observed(Value, frozen=True, kw_only=True):
    machine: str
    at: float
    probe: str
    variant: str
    observation: Observation


class UnwrittenEntries(Value, frozen=True, kw_only=True):
    """What could not be written. Nothing is lost in silence."""

    dropped: int = 0  # for want of room: the oldest first
    refused: int = 0  # that the database would not have
    waiting: int = 0
    why: str = ""  # what was wrong with the disk last
