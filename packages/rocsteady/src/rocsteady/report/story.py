"""The story of a run: one typed value that the page, the text, the Markdown and the JSON render.

``read_run.py`` reads what is known of a run; ``build_story`` turns it into the story. Everything
here is a pure function.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime
from enum import Enum

import msgspec

from rocsteady.doctor.knowledge.values import Fix
from rocsteady.doctor.values import Brief, Diagnosis
from rocsteady.failures.difference import describe_changes
from rocsteady.failures.situation import Reach, made_difference
from rocsteady.hangs.frames import is_users_file, place
from rocsteady.hangs.proof.wait_set import Waiter
from rocsteady.model import (
    Failure,
    FailureKind,
    IntentKind,
    Outcome,
    RunEvent,
    RunOutcome,
    Strategy,
    Value,
)
from rocsteady.report.plot_points import Plot, gauge_names, phase_seconds, plots
from rocsteady.report.source_lines import SourceExcerpt
from rocsteady.report.wait_diagram import Box, spoken, wait_boxes
from rocsteady.store.forecast import totals
from rocsteady.store.redaction import shown_command
from rocsteady.store.run_account import (
    Costs,
    costs_of,
    crashed_attempts,
    decision_after,
    decision_sentence,
    decision_with_reason,
    end_of,
    end_with_step,
    ended_well,
    failure_after,
    has_trained,
    incident_title,
    open_incident,
)
from rocsteady.store.values import (
    AttemptRecord,
    Bucket,
    Incident,
    RunRecord,
)
from rocsteady.wording import capitalized, duration, inside_a_sentence, plural, result, spare, stamp

NO_CHANGES = "unchanged"  # settings
STAMP = 25  # letters of the time before each line of a log
LAST_LINES = 3  # of a run that was done, among which it may say that something failed
_CALLED_ERROR = re.compile(r"[\d\s:.,\[\]-]*(?:ERROR|FATAL|CRITICAL)\b")
UNCONFIRMED = "Unverified on AMD hardware."
FROM_THE_BEGINNING = "start again, from the beginning (it cannot resume)"
THREAD_ENDED = "Exception in thread "
_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z ?")
_FRAME = re.compile(r' +File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')
ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
ATTEMPT_COLUMNS = (
    "try", "started", "settings", "duration", "end", "last step", "cause", "then",
)  # fmt: skip
TRIED_COLUMNS = ("when", "step", "no step for", "then", "result")
WAITS_AT_ONCE = 4  # lines of a proof that are shown; of more, the first and the last


class State(Enum):
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # it has no end, and nobody supervises it
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Tone(Enum):
    """How good a state is: a class of the style sheet, a color of the terminal."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


class Action(Enum):
    NOTHING = "nothing"
    WATCH = "watch"
    RESUME = "resume"
    FIX_SCRIPT = "fix the script"
    KEEP_CHANGE = "fix the script, or keep the change"
    FIX_CAUSE = "fix the cause"
    AVOID_CRASH = "avoid a crash of the machine"


class IncidentEvidence(Value, frozen=True, kw_only=True):
    """What the files of an incident contain."""

    incident: int
    waits: tuple[str, ...] = ()  # the wait set, a sentence each
    waiters: tuple[Waiter, ...] = ()  # the same
    source: SourceExcerpt | None = None  # around the line where it was stuck
    stacks: str = ""  # of the processes that were looked at


class RunFacts(Value, frozen=True, kw_only=True):
    """What a story is built from, redacted."""

    at: float  # when it was read
    record: RunRecord  # from the journal
    is_running: bool = False
    resumes: bool = True  # rocsteady knows how the script does
    diagnosis: Diagnosis | None = None  # of the machine when the run began
    variables: dict[str, str] = msgspec.field(default_factory=dict)  # that rocsteady knows
    evidence: tuple[IncidentEvidence, ...] = ()
    # By attempt, without a hang.
    failed_at: dict[int, SourceExcerpt] = msgspec.field(default_factory=dict)
    crash: str = ""  # what is known of a crash of the machine, if there was one
    advice: dict[str, Fix] = msgspec.field(default_factory=dict)  # by the kind of a failure
    log_tail: str = ""


class NextStep(Value, frozen=True, kw_only=True):
    action: Action
    text: str
    command: str = ""  # to type, if there is one


class Segment(Value, frozen=True, kw_only=True):
    kind: str  # starting, training, stalled, restarting, paused
    begin: float
    end: float


class Moment(Value, frozen=True, kw_only=True):
    """A time in a table: a page shows it as the reader's clock had it, a text in UTC."""

    at: float

    def __str__(self) -> str:
        return stamp(self.at)


class AttemptStory(Value, frozen=True, kw_only=True):
    number: int
    started: float
    ended: float | None
    settings: str
    end: str  # such as "hung, ended by rocsteady"
    last_step: int | None
    ended_well: bool
    in_progress: bool
    failure: Failure | None
    decision: str = ""  # "Restarted the run with loader-inline."
    reason: str = ""  # the same, with why
    segments: tuple[Segment, ...] = ()

    @property
    def goes_on(self) -> bool:
        return self.ended_well or self.in_progress

    @property
    def outcome(self) -> str:
        if self.ended is None:
            return self.end
        return end_with_step(self.end, self.last_step, ended_well=self.ended_well)

    @property
    def cells(self) -> tuple[str | Moment, ...]:
        """Return its row of a table with ``ATTEMPT_COLUMNS``."""
        return (
            str(self.number),
            Moment(at=self.started),
            self.settings,
            "" if self.ended is None else duration(self.ended - self.started),
            self.end,
            "" if self.last_step is None else f"{self.last_step:,}",
            self.failure.kind if self.failure else "",
            "" if self.ended_well else self.decision.rstrip("."),
        )


class Trouble(Value, frozen=True, kw_only=True):
    """Something that went wrong in an attempt: an incident, a failure, a crash of the machine."""

    attempt: int
    title: str
    at: float | None = None  # when the attempt ended
    incident: Incident | None = None
    failure: Failure | None = None
    crash: str = ""  # what is known of a crash of the machine
    advice: Fix | None = None  # what a person can do
    waits: tuple[str, ...] = ()  # the proof: what is shown at once
    more_waits: tuple[str, ...] = ()
    boxes: tuple[Box, ...] = ()  # the wait as a picture
    source: SourceExcerpt | None = None
    stacks: str = ""
    evidence: str = ""  # a folder
    decision: str = ""  # what rocsteady did
    action: str = ""  # the same, with why
    effect: str = ""  # what came of it
    last_step: int | None = None

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Return what the identification rests on, each with its address if it is an issue."""
        found = self.failure.sources if self.failure else ()
        issues = ((each, ISSUE.fullmatch(each)) for each in found)
        return tuple(
            (each, f"https://github.com/{issue[1]}/issues/{issue[2]}" if issue else "")
            for each, issue in issues
        )


class TroubleGroup(Value, frozen=True, kw_only=True):
    title: str
    troubles: tuple[Trouble, ...]

    @property
    def first(self) -> Trouble:
        return self.troubles[0]

    @property
    def rows(self) -> tuple[tuple[str | Moment, ...], ...]:
        """Return what was tried, with ``TRIED_COLUMNS``; of a single failure it is one sentence."""
        if len(self.troubles) == 1 and not self.first.incident:
            return ()
        return tuple(
            (
                "" if at is None else Moment(at=at),
                "" if it.last_step is None else f"{it.last_step:,}",
                duration(it.incident.quiet) if it.incident else "",
                it.decision.rstrip("."),
                it.effect,
            )
            for it in self.troubles
            for at in (it.incident.at if it.incident else it.at,)
        )


class Story(Value, frozen=True, kw_only=True):
    at: float  # when it was made
    record: RunRecord  # what the journal has
    state: State
    tone: Tone
    happened: str  # in one sentence or two
    next_step: NextStep
    steps: int | None  # that were made
    met: str  # whether the deadline was met, or is expected to be; "" without one
    attempts: tuple[AttemptStory, ...]
    troubles: tuple[TroubleGroup, ...]
    plots: tuple[Plot, ...]
    phases: tuple[tuple[str, float], ...]  # seconds by phase, longest first
    costs: Costs
    machine: Diagnosis | None
    variables: dict[str, str]
    log_tail: str
    unknown: tuple[str, ...]  # what the report cannot say, and why

    @property
    def command(self) -> str:
        return shlex.join(self.record.run.command)

    @property
    def incidents(self) -> tuple[Trouble, ...]:
        found = [each for group in self.troubles for each in group.troubles if each.incident]
        return tuple(sorted(found, key=lambda each: each.incident.number if each.incident else 0))


def story_document(story: Story) -> dict[str, object]:
    """Return the story as JSON has it: what the journal recorded, and what it comes to."""
    explained = {name: getattr(story, name) for name in ("state", "happened", "next_step", "costs")}
    return {**msgspec.to_builtins(story.record), **msgspec.to_builtins(explained)}


def build_story(facts: RunFacts) -> Story:
    record = facts.record
    attempts = attempt_stories(record, is_running=facts.is_running)
    state = _state(facts)
    current = open_incident(record) if state is State.RUNNING else None
    injected = any(message.event is RunEvent.FAULTS for message in record.messages)
    return Story(
        at=facts.at,
        record=record,
        state=state,
        tone=_tone(state, current),
        happened=_happened(facts, state, attempts, injected=injected),
        next_step=_next_step(facts, state, attempts),
        steps=_steps(record.progress)[0],
        met=_met(record),
        attempts=attempts,
        troubles=_grouped(_troubles(facts, attempts)),
        plots=plots(record.progress, record.attempts, record.intents),
        phases=phase_seconds(record.progress),
        costs=costs_of(record, facts.at),
        machine=facts.diagnosis,
        variables=facts.variables,
        log_tail=facts.log_tail,
        unknown=_unknown(facts),
    )


def attempt_stories(record: RunRecord, *, is_running: bool = False) -> tuple[AttemptStory, ...]:
    """Explain each attempt: its settings, its end, the failure, and what was decided."""
    crashed = crashed_attempts(record)
    end_of_run = record.run.ended
    stories = []
    for attempt in record.attempts:
        decision = decision_after(record, attempt.number)
        has_crashed = attempt.number in crashed
        in_progress = attempt.ended is None and is_running and not has_crashed
        stories.append(
            AttemptStory(
                number=attempt.number,
                started=attempt.started,
                ended=attempt.ended and attempt.started + attempt.seconds,
                settings=settings_of(attempt),
                end=end_of(attempt, in_progress=in_progress, crashed=has_crashed),
                last_step=attempt.last_step,
                ended_well=ended_well(attempt),
                in_progress=in_progress,
                failure=failure_after(record, attempt.number),
                decision=decision_sentence(decision) if decision else "",
                reason=decision_with_reason(decision) if decision else "",
                segments=_segments(attempt, record, end_of_run),
            )
        )
    return tuple(stories)


def _segments(
    attempt: AttemptRecord, record: RunRecord, end_of_run: float | None
) -> tuple[Segment, ...]:
    """Cut an attempt where it made its first and its last step, and where a hang was found."""
    own = [bucket for bucket in record.progress if bucket.attempt == attempt.number]
    begun = [bucket.first_progress for bucket in own if bucket.first_progress is not None]
    moved = [bucket.last_progress for bucket in own if bucket.last_progress is not None]
    end = attempt.ended or end_of_run
    hang = next((each for each in record.incidents if each.attempt == attempt.number), None)
    first = max(attempt.started, min(begun)) if begun else None
    last = max(moved) if moved else None
    if last is None and hang is not None:
        last = max(attempt.started, hang.at - hang.quiet)
    elif hang is None and last is not None and attempt.outcome is Outcome.BY_ITSELF:
        last = max(last, attempt.ended or last)  # it ran until it ended
    cuts = [("starting", attempt.started, first if first is not None else last or end)]
    if first is not None and last is not None:
        cuts.append(("training", first, last))
    if end is not None and last is not None and not ended_well(attempt):
        found = hang.at if hang is not None else end
        next_start = (each.started for each in record.attempts if each.number > attempt.number)
        cuts += [("stalled", last, found), ("restarting", found, next(next_start, end))]
    cuts += [
        ("paused", intent.at, intent.ended or end)
        for intent in record.intents
        if intent.kind is IntentKind.PAUSE and intent.attempt == attempt.number
    ]
    return tuple(
        Segment(kind=kind, begin=begin, end=until)
        for kind, begin, until in cuts
        if until is not None and until > begin
    )


def settings_of(attempt: AttemptRecord) -> str:
    return describe_changes(Strategy(), attempt.strategy) or NO_CHANGES


def torch_of(machine: Brief) -> str:
    return f"PyTorch {machine.torch}" if machine.torch else "no PyTorch"


def _state(facts: RunFacts) -> State:
    run = facts.record.run
    if run.ended is None:
        return State.RUNNING if facts.is_running else State.INTERRUPTED
    ends = {RunOutcome.DONE: State.DONE, RunOutcome.STOPPED: State.STOPPED}
    return ends.get(run.outcome, State.FAILED)


def _tone(state: State, current: Incident | None) -> Tone:
    if state is State.FAILED:
        return Tone.BAD
    good = state is State.DONE or (state is State.RUNNING and current is None)
    return Tone.OK if good else Tone.WARNING


def _steps(progress: Sequence[Bucket]) -> tuple[int | None, int | None]:
    """Return the last step and the planned number of steps, as far as both are known."""
    if not progress:
        return None, None
    return progress[-1].last_step, totals(progress)


def _happened(
    facts: RunFacts, state: State, tries: Sequence[AttemptStory], *, injected: bool
) -> str:
    record, run = facts.record, facts.record.run
    ended = [each for each in record.attempts if each.ended]
    attempts = sum(each.seconds for each in ended)
    clock_set = sum((each.ended or 0.0) - each.started - each.seconds for each in ended)
    took = duration(max(attempts, (run.ended or facts.at) - run.started - clock_set))
    progress, (step, total) = _progress(record), _steps(record.progress)
    begin = {
        State.DONE: f"The training is done{progress}, in {took}; what came after it failed"
        if has_trained(record)
        else f"The run finished{progress} in {took}",
        State.RUNNING: f"The run is in progress{progress}, {took} after it started",
        State.INTERRUPTED: f"The run is not finished{progress}; its supervisor is no longer"
        " running",
        State.STOPPED: f"The run was stopped by the user{progress} after {took}",
        State.FAILED: f"All {step:,} steps were made, and the run failed afterwards, after {took}"
        if step is not None and step == total
        else f"The run ended without finishing{progress} after {took}",
    }[state]
    named_by_state = (RunOutcome.NONE, RunOutcome.DONE, RunOutcome.STOPPED, RunOutcome.NOT_DONE)
    outcome = "" if run.outcome in named_by_state else f": {run.outcome.value}"
    note = "Faults were injected into this run on purpose. " if injected else ""
    now = open_incident(record) if state is State.RUNNING else None
    handled = f" It {spoken_title(now)} just now and is being restarted." if now else ""
    return f"{note}{begin}{outcome}.{handled} {_trouble_in_short(facts, tries)}".rstrip()


def _progress(record: RunRecord) -> str:
    step, total = _steps(record.progress)
    if step is None:
        return ""
    crashed = crashed_attempts(record)
    if record.progress[-1].attempt in crashed:  # seen last, but not on disk
        return f" (at least {plural(step, 'step')})"
    if total is None:
        return f" ({plural(step, 'step')})"
    about = "about " * (bool(crashed) and step < total)  # some may not have been seen
    of = f" of {total:,}" if step != total else ""
    return f" ({about}{step:,}{of} steps)"


def _trouble_in_short(facts: RunFacts, attempts: Sequence[AttemptStory]) -> str:
    """Return what went wrong and what it cost, the user's own line first."""
    record = facts.record
    said = [f"The machine crashed in try {number}." for number in crashed_attempts(record)]
    ends: dict[str, int] = {}
    for attempt in attempts:
        if what := _how_it_failed(record, attempt):
            ends[what] = ends.get(what, 0) + 1
    for what, count in ends.items():
        again = "" if count == 1 else " twice" if count == 2 else f" {count} times"  # noqa: PLR2004
        verb, _, where = what.partition(" ")
        colon = ":" * verb.endswith(":")
        said.append(f"It {verb.removesuffix(':')}{again}{colon} {where}".rstrip() + ".")
    if step := _loss_spoilt_by(record):
        said.append(f"Its loss was NaN or infinite by step {step:,}, to the end.")
    if record.unrecorded_since is not None:
        since = datetime.fromtimestamp(record.unrecorded_since).astimezone()
        said.append(f"It was not recorded from {since:%H:%M} on.")
    if line := _last_words(facts):
        said.append(f"It exited with 0; one of its last lines is an error: {line}.")
    if not said:
        return "Nothing went wrong."
    last = attempts[-1]
    changed = ""
    if last.settings != NO_CHANGES and last.goes_on:
        vain = "" if last.in_progress or _helped(record) else ", which did not help"
        goes_on = "goes on" if last.in_progress else "continued"
        changed = f"It {goes_on} with {last.settings}{vain}. "
    lost = f"This cost {duration(record.seconds_lost)}." * (record.seconds_lost > 0)
    return f"{' '.join(said)} {changed}{lost}".rstrip()


def _how_it_failed(record: RunRecord, attempt: AttemptStory) -> str:
    """Return a clause such as "hung at train.py:24 in load"; "" if it did not fail."""
    hang = next((each for each in record.incidents if each.attempt == attempt.number), None)
    if hang is not None:
        return spoken_title(hang)
    failure = attempt.failure
    if failure is None:
        return ""
    what = failure.seen[0] if failure.kind == FailureKind.SCRIPT_ERROR and failure.seen else ""
    where = f" at {failure.line}" if failure.line else ""
    cause = what or inside_a_sentence(_title_of(failure))
    return f"failed{where}: {cause}"


def spoken_title(incident: Incident) -> str:
    title = incident_title(incident)
    return title.replace(incident.cause, spoken(incident.cause)) if incident.cause else title


def _next_step(facts: RunFacts, state: State, attempts: Sequence[AttemptStory]) -> NextStep:
    record = facts.record
    name = shlex.quote(record.run.name)
    if state is State.DONE:
        return _after_success(facts, attempts)
    if state is State.RUNNING:
        return NextStep(
            action=Action.WATCH,
            text="Watch it:",
            command=f"rocsteady watch {name}",
        )
    resume = f"rocsteady run --resume {name}"
    if not facts.resumes:
        resume = f"rocsteady run --resume never -- {shown_command(record.run.command)}"
    again = "continue" if facts.resumes else FROM_THE_BEGINNING
    failure = attempts[-1].failure if attempts else None
    asked = failure is not None and failure.kind == FailureKind.INTERRUPTED
    if asked or state is not State.FAILED:
        text = "To resume the run:" if facts.resumes else f"To {again}:"
        return NextStep(action=Action.RESUME, text=text, command=resume)
    crashed = crashed_attempts(record)
    if crashed and crashed[-1] == len(attempts):
        text = (
            "The same settings may crash the machine again. Run rocsteady doctor, and compare other"
            " options with rocsteady plan. To start anyway:"
        )
        return NextStep(action=Action.AVOID_CRASH, text=text, command=f"{resume} --again")
    if failure is not None and failure.kind == FailureKind.SCRIPT_ERROR:
        place = f" at {failure.line}" if failure.line else ""
        error = f" ({failure.seen[0]})" if failure.seen else ""
        text = f"Fix the error in the script{place}{error}, then {again}:"
        return NextStep(action=Action.FIX_SCRIPT, text=text, command=resume)
    last = record.decisions[-1] if record.decisions else None
    gave_up = last.decision.why.rstrip(".") if last is not None and last.decision.ends else ""
    ours = attempts[-1].number if attempts else 0
    places = [it.cause for it in record.incidents if it.attempt == ours and it.cause]
    why = f"rocsteady stopped trying: {gave_up}. " if gave_up else ""
    fix = f"Fix {spoken(places[-1])}, then" if places else f"{why}After fixing the cause,"
    if places and (thread := ended_thread(facts.log_tail)):
        fix = f"A thread ended with {thread}; {spoken(places[-1])} may wait for it. Fix it, then"
    text = f"{fix} {again}:"
    return NextStep(action=Action.FIX_CAUSE, text=text, command=resume)


def ended_thread(log: str) -> str:
    """Return the error that a thread ended with, and the user's line: of the last one in a log."""
    lines = [_STAMP.sub("", line) for line in log.splitlines()]
    start = max((n for n, line in enumerate(lines) if line.startswith(THREAD_ENDED)), default=None)
    if start is None:
        return ""
    trace = lines[start + 2 :]  # behind "Traceback (most recent call last):"
    error = next((line for line in trace if line and not line.startswith(" ")), "")
    if not error:
        return ""
    frames = [found for line in trace[: trace.index(error)] if (found := _FRAME.match(line))]
    own = [frame for frame in frames if is_users_file(frame["file"])]
    at = place(own[-1]["function"], own[-1]["file"], own[-1]["line"]) if own else ""
    return f"{error} at {spoken(at)}" if at else error


def _after_success(facts: RunFacts, attempts: Sequence[AttemptStory]) -> NextStep:
    """Return the line to fix, and how to keep what helped."""
    record = facts.record
    if has_trained(record):
        line = record.failures[-1].failure.line if record.failures else ""
        fix = f"Fix {line}, then repeat" if line else "Repeat"
        text = f"{fix} only what comes after the training, which is done."
        return NextStep(action=Action.FIX_SCRIPT, text=text)
    if step := _loss_spoilt_by(record):
        advice = facts.advice.get(FailureKind.NAN_LOSS)
        loop = record.attempts[-1].result and record.attempts[-1].result.batch_split
        back = " Loop(roll_back=RollBack()) goes back to the last good checkpoint." if loop else ""
        text = f"What was trained from step {step:,} on is of no use.{back}"
        return NextStep(
            action=Action.FIX_CAUSE, text=f"{text} {advice.text if advice else ''}".rstrip()
        )
    places = [spoken(each.cause) for each in record.incidents if each.cause]
    place = max(places, key=places.count, default="")
    kept = attempts[-1].settings if attempts else NO_CHANGES
    settings = {each.number: each.settings for each in attempts}
    changes = [
        each
        for each in record.decisions
        if settings.get(each.attempt) != settings.get(each.attempt + 1)
        and not (each.decision.ends or each.decision.changes_nothing)
    ]
    if kept != NO_CHANGES and changes and not changes[-1].decision.fallback and _helped(record):
        fix = f"Fix {place}, or keep" if place else "Keep"
        strategy = record.attempts[-1].strategy
        unset = [name for name, value in strategy.variables.items() if value is None]
        if strategy == Strategy(variables=dict.fromkeys(unset)):
            command = f"unset {' '.join(unset)}"
        else:
            with_ = f"rocsteady run --with {changes[-1].decision.what}"
            command = f"{with_} -- {shlex.join(record.run.command)}"
        return NextStep(
            action=Action.KEEP_CHANGE, text=f"{fix} the workaround ({kept}):", command=command
        )
    if place:
        return NextStep(action=Action.FIX_SCRIPT, text=f"Fix {place}.")
    advised = (facts.advice.get(each.failure.kind) for each in reversed(record.failures))
    if advice := next(filter(None, advised), None):
        return NextStep(action=Action.FIX_CAUSE, text=f"Before the next run: {advice.text}")
    line = _last_words(facts)
    text = f"See whether this is right: {line}" if line else "Nothing. The run is done."
    return NextStep(action=Action.FIX_CAUSE if line else Action.NOTHING, text=text)


def _last_words(facts: RunFacts) -> str:
    """Return what a run that was done calls an error, among the last lines that it printed."""
    last = [line[STAMP:] for line in facts.log_tail.splitlines() if line[STAMP:].strip()]
    done = facts.record.run.outcome is RunOutcome.DONE and not has_trained(facts.record)
    return next((it.strip() for it in last[-LAST_LINES:] if done and _CALLED_ERROR.match(it)), "")


def _loss_spoilt_by(record: RunRecord) -> int:
    """Return the step by which the loss of the last attempt was not finite; 0: it was."""
    last = record.attempts[-1] if record.attempts else None
    named = last is not None and failure_after(record, last.number)
    if last is None or last.result is None or (named and named.kind == FailureKind.NAN_LOSS):
        return 0
    return last.result.not_finite


def _helped(record: RunRecord) -> bool:
    """Return whether the settings of the last attempt have shown that they help."""
    reached = [Reach.between(it.strategy, it.first_step, it.last_step) for it in record.attempts]
    return made_difference(reached)


def _met(record: RunRecord) -> str:
    if record.deadline is None:
        return ""
    run = record.run
    if run.ended is not None:
        return result(run.ended, run.outcome, record.deadline)
    return spare(record.forecast.at, record.deadline) if record.forecast else ""


def _troubles(facts: RunFacts, attempts: Sequence[AttemptStory]) -> list[Trouble]:
    """Return each incident, each failure that had none, and each crash of the machine."""
    record = facts.record
    evidence = {each.incident: each for each in facts.evidence}
    found = []
    for incident in record.incidents:
        own = evidence.get(incident.number, IncidentEvidence(incident=incident.number))
        folds = len(own.waits) > WAITS_AT_ONCE
        found.append(
            msgspec.structs.replace(
                _trouble(facts, attempts, incident.attempt, spoken_title(incident)),
                incident=incident,
                boxes=wait_boxes(own.waiters, incident.cause),
                source=own.source,
                waits=(own.waits[0], own.waits[-1]) if folds else own.waits,
                more_waits=own.waits[1:-1] if folds else (),
                stacks=own.stacks,
                evidence=_in_project(incident.evidence),
            )
        )
    with_incident = {incident.attempt for incident in record.incidents}
    for row in record.failures:
        if row.attempt not in with_incident:
            trouble = _trouble(facts, attempts, row.attempt, _failed_title(row.failure))
            found.append(
                msgspec.structs.replace(
                    trouble,
                    evidence=_in_project(row.evidence),
                    source=facts.failed_at.get(row.attempt),
                )
            )
    if step := _loss_spoilt_by(record):
        title = f"the loss was NaN or infinite by step {step:,}, to the end"
        found.append(
            msgspec.structs.replace(
                _trouble(facts, attempts, len(attempts), title),
                advice=facts.advice.get(FailureKind.NAN_LOSS),
                action="Nothing was changed: the script went on, and rocsteady leaves the numbers"
                " of a run alone.",
                last_step=step,
            )
        )
    named = {row.attempt for row in record.failures}
    for attempt in crashed_attempts(record):
        if attempt not in named:
            title = f"the machine crashed during try {attempt}"
            trouble = _trouble(facts, attempts, attempt, title)
            followed = attempt < len(record.attempts)
            action = "" if followed else "Not started again with the same settings."
            found.append(
                msgspec.structs.replace(trouble, crash=facts.crash, action=trouble.action or action)
            )
    return found


def _trouble(facts: RunFacts, attempts: Sequence[AttemptStory], number: int, title: str) -> Trouble:
    own = next((each for each in attempts if each.number == number), None)
    following = next((each for each in attempts if each.number == number + 1), None)
    failure = failure_after(facts.record, number)
    return Trouble(
        attempt=number,
        title=capitalized(title),
        at=own.ended if own else None,
        failure=failure,
        advice=facts.advice.get(failure.kind) if failure else None,
        decision=own.decision if own else "",
        action=own.reason if own else "",
        effect=following.outcome if following else "",
        last_step=own.last_step if own else None,
    )


def _title_of(failure: Failure) -> str:
    """Name the rank in place of the process, where there are several."""
    who = "The process" if failure.rank is None else f"Rank {failure.rank}"
    return failure.title.rstrip(".").replace("The process", who, 1)


def _failed_title(failure: Failure) -> str:
    where = f" at {failure.line}" if failure.line else ""
    title = _title_of(failure)
    killed = failure.kind == FailureKind.KILLED  # a launcher's words say no more than that
    if not failure.seen or failure.by_end or killed:  # what was seen are our own words
        return f"{title}{where}"
    own = failure.kind == FailureKind.SCRIPT_ERROR  # what it says is all there is to say
    return f"{'' if own else f'{title}: '}{failure.seen[0]}{where}"


def _grouped(troubles: Sequence[Trouble]) -> tuple[TroubleGroup, ...]:
    """Put together what hung or failed at the same place for the same reason."""
    groups: dict[tuple[object, ...], list[Trouble]] = {}
    for number, trouble in enumerate(troubles):
        failure = trouble.failure
        key: tuple[object, ...] = (number,)
        if trouble.incident.place if trouble.incident else failure:
            key = (trouble.title, (failure.kind, failure.line) if failure else None)
        groups.setdefault(key, []).append(trouble)
    return tuple(
        TroubleGroup(title=found[0].title, troubles=tuple(found)) for found in groups.values()
    )


def _in_project(path: str) -> str:
    """Name a path from the project on, where it is in one."""
    _, found, rest = path.partition("/.rocsteady/")
    return f".rocsteady/{rest}" if found else path


def _unknown(facts: RunFacts) -> tuple[str, ...]:
    missing = []
    if facts.diagnosis is None:
        missing.append("The machine was not examined when this run began.")
    else:
        missing += [f"Not checked: {each.what}: {each.why}" for each in facts.diagnosis.unchecked]
    names = gauge_names(facts.record.progress)
    if "loss" not in names:
        missing.append("No loss: the script printed none in a format that rocsteady recognizes.")
    if not any(name.startswith("GPU") for name in names):
        missing.append("No GPU measurements: no AMD GPU responded during the run.")
    return tuple(missing)
