"""What a report of a run is made from, and what it says in one sentence."""

from __future__ import annotations

import shlex

import msgspec

from rocsteady.doctor.knowledge.values import Fix
from rocsteady.doctor.values import Brief, Diagnosis
from rocsteady.model import Failure, FailureKind, IntentKind, Outcome, RunOutcome, Value
from rocsteady.store.values import (
    INJECTED,
    AttemptRecord,
    DecisionRecord,
    Incident,
    RunStory,
    paused_between,
)
from rocsteady.wording import duration, inside_a_sentence, plural

UNCHANGED = "unchanged"  # settings
SWITCHED = {"True": "on", "False": "off"}
CONTINUE = "continue"
FROM_THE_BEGINNING = (
    "start again, from the beginning (rocsteady does not know how the script resumes)"
)
_IN_THE_STATE = (RunOutcome.NONE, RunOutcome.DONE, RunOutcome.STOPPED, RunOutcome.NOT_DONE)
OK, WARNING, BAD = "ok", "warning", "bad"


class IncidentProof(Value, frozen=True, kw_only=True):
    """What the evidence of an incident says, for a page."""

    incident: int
    waits: tuple[str, ...] = ()  # the wait set, a sentence each
    stacks: str = ""  # of the processes that were looked at


class RunReport(Value, frozen=True, kw_only=True):
    """All that a page about a run shows."""

    version: int = 1
    at: float  # when it was made
    story: RunStory
    is_running: bool = False
    resumes: bool = True  # rocsteady knows how the script does
    diagnosis: Diagnosis | None = None  # of the machine when the run began
    variables: dict[str, str] = msgspec.field(default_factory=dict)  # that rocsteady knows
    proofs: tuple[IncidentProof, ...] = ()
    crash: str = ""  # what is known of a crash of the machine, if there was one
    advice: dict[str, Fix] = msgspec.field(default_factory=dict)  # by the kind of a failure
    log_tail: str = ""


class Costs(Value, frozen=True, kw_only=True):
    """Where the time of a run went, in seconds."""

    whole: float
    idle: float  # from the last step of one attempt to the first of the next
    redone: float  # steps that were made twice
    starting: float  # before the first step of the first attempt
    paused: float = 0.0  # by the user

    @property
    def useful(self) -> float:
        """Return what is left: training, with the saves that the script makes."""
        return max(0.0, self.whole - self.idle - self.redone - self.starting - self.paused)


def costs_of(story: RunStory, at: float) -> Costs:
    """Say where the time went."""
    begun = [b.first_progress for b in story.progress if b.first_progress is not None]
    whole = max(0.0, (story.run.ended or at) - story.run.started)
    first = min(begun, default=None)
    return Costs(
        whole=whole,
        idle=sum(loss.idle for loss in story.losses) + _down(story, story.run.ended or at),
        redone=sum(loss.redoing for loss in story.losses),
        starting=whole if first is None else max(0.0, first - story.run.started),
        paused=paused_between(story.intents, first or story.run.started, story.run.ended or at),
    )


def _down(story: RunStory, end: float) -> float:
    """Return the time from the last progress to a crash of the machine, and after it."""
    if not story.attempts or story.attempts[-1].number not in crashed_attempts(story):
        return 0.0
    last = story.attempts[-1]
    seen = [b.last_progress for b in story.progress if b.attempt == last.number]
    return max(0.0, end - max((at for at in seen if at is not None), default=last.started))


def state_of(report: RunReport) -> tuple[str, str]:
    """Return one word or two for the state of a run, and how good it is."""
    run = report.story.run
    if run.ended is None and report.is_running:
        return "running", WARNING if open_incident(report.story) else OK
    if run.ended is None:
        return "interrupted", WARNING
    if run.outcome is RunOutcome.DONE:
        return "done", OK
    return ("stopped", WARNING) if run.outcome is RunOutcome.STOPPED else ("failed", BAD)


def summary(report: RunReport) -> str:
    """Say in one sentence or two what happened."""
    story, (state, _) = report.story, state_of(report)
    attempts = sum(each.ended - each.started for each in story.attempts if each.ended)
    took = duration(max(attempts, (story.run.ended or report.at) - story.run.started))
    progress = _progress(story)
    begin = {
        "done": f"The run finished{progress} in {took}.",
        "running": f"The run is in progress{progress}, {took} after it started.",
        "interrupted": f"The run is not finished{progress}; its supervisor is no longer running.",
        "stopped": f"The run was stopped by the user{progress} after {took}.",
        "failed": f"The run ended without finishing{progress} after {took}.",
    }[state]
    if story.run.outcome not in _IN_THE_STATE:
        begin = f"{begin[:-1]}: {story.run.outcome.value}."
    injected = any(message.text.startswith(INJECTED) for message in story.messages)
    note = "Faults were injected into this run on purpose. " if injected else ""
    now = open_incident(story) if report.is_running else None
    handled = f" Incident {now.number}, {incident_title(now)}, is being handled." if now else ""
    return f"{note}{begin}{handled} {_trouble(story)}".rstrip()


def open_incident(story: RunStory) -> Incident | None:
    """Return the incident of the last attempt, as long as nothing is decided about it."""
    last = story.incidents[-1] if story.incidents else None
    if last is None or last.attempt < len(story.attempts):
        return None
    return None if decision_after(story, last.attempt) else last


def next_step(report: RunReport) -> tuple[str, str]:
    """Say what the reader should do now: a sentence, and what to type, if there is something."""
    story, (state, _) = report.story, state_of(report)
    name = shlex.quote(story.run.name)
    if state == "done":
        settings = settings_of(story.attempts[-1]) if story.attempts else UNCHANGED
        changed = f" It finished with changed settings: {settings}." * (settings != UNCHANGED)
        return f"No action needed. The run is done.{changed}", ""
    if state == "running":
        return "No action needed. To watch the run:", f"rocsteady watch {name}"
    again = CONTINUE if report.resumes else FROM_THE_BEGINNING
    if state in {"interrupted", "stopped"}:
        what = "To resume the run:" if report.resumes else f"To {again}:"
        return what, f"rocsteady run --resume {name}"
    crashed = crashed_attempts(story)
    if crashed and crashed[-1] == len(story.attempts):
        what = (
            "The same settings may crash the machine again. Run rocsteady doctor, and compare other"
            " options with rocsteady plan. To start anyway:"
        )
        return what, f"rocsteady run --resume {name} --again"
    last = story.decisions[-1] if story.decisions else None
    decided = last.why.rstrip(".") if last is not None and last.ends else ""
    failed = failure_of(story, story.attempts[-1].number) if story.attempts else None
    if failed is not None and failed.kind == FailureKind.SCRIPT_ERROR:
        place = f" at {failed.line}" if failed.line else ""
        error = f" ({failed.seen[0]})" if failed.seen else ""
        return (
            f"Fix the error in the script{place}{error}, then {again}:",
            f"rocsteady run --resume {name}",
        )
    why = f"rocsteady stopped trying: {decided}. " if decided else ""
    return f"{why}After fixing the cause, {again}:", f"rocsteady run --resume {name}"


def crashed_attempts(story: RunStory) -> tuple[int, ...]:
    """Return the attempts during which the machine crashed."""
    return tuple(
        intent.attempt
        for intent in story.intents
        if intent.kind is IntentKind.START and intent.crashed_machine and intent.attempt is not None
    )


def failure_of(story: RunStory, attempt: int) -> Failure | None:
    """Return why an attempt ended, if that was identified."""
    return next((row.failure for row in story.failures if row.attempt == attempt), None)


def decision_after(story: RunStory, attempt: int) -> DecisionRecord | None:
    """Return what was decided when an attempt had ended."""
    return next((each for each in reversed(story.decisions) if each.attempt == attempt), None)


def decision_in_words(decision: DecisionRecord) -> str:
    """Say what rocsteady did after an attempt, as a sentence."""
    if decision.ends:
        return "Ended the run."
    if decision.changes_nothing:
        return "Restarted the run without changes."
    what = "another option of the plan" if decision.fallback else decision.what
    return f"Restarted the run with {what}."


def decision_with_reason(decision: DecisionRecord) -> str:
    """Say what rocsteady did and why; the reason for a retry says that nothing is changed."""
    done = "Restarted the run." if decision.changes_nothing else decision_in_words(decision)
    why = decision.why.rstrip(".")
    return f"{done} {why[:1].upper()}{why[1:]}."


def torch_of(machine: Brief) -> str:
    """Say which PyTorch a machine has."""
    return f"PyTorch {machine.torch}" if machine.torch else "no PyTorch"


def effect_of(report: RunReport, attempt: int) -> str:
    """Say what came of the decision after an attempt."""
    story = report.story
    following = next((each for each in story.attempts if each.number == attempt + 1), None)
    if following is None:
        return "No attempt followed."
    return f"Attempt {following.number} {attempt_end(following, story, running=report.is_running)}."


def settings_of(attempt: AttemptRecord) -> str:
    """Say what was changed against the script."""
    changed = msgspec.to_builtins(attempt.strategy)  # without what is not changed
    variables = changed.pop("variables", {})
    words = [f"{name}={SWITCHED.get(str(value), value)}" for name, value in changed.items()]
    for name, value in variables.items():
        words.append(f"{name} unset" if value is None else f"{name}={value}")
    return ", ".join(words) or UNCHANGED


def ended_well(attempt: AttemptRecord) -> bool:
    """Tell whether the script came to its end."""
    return attempt.outcome is Outcome.BY_ITSELF and attempt.exit_code == 0


def attempt_end(attempt: AttemptRecord, story: RunStory, *, running: bool = False) -> str:
    """Say how an attempt ended, as the end of a sentence."""
    step = "" if attempt.last_step is None else f" at step {attempt.last_step:,}"
    if attempt.ended is None:
        crashed = attempt.number in crashed_attempts(story)
        cut_off = f"was cut off: {'the machine crashed' if crashed else 'rocsteady was killed'}"
        return "is in progress" if running and not crashed else cut_off
    if ended_well(attempt):
        return f"ended normally{step}"
    by = f"exit code {attempt.exit_code}"
    if attempt.signal:
        by = f"signal {attempt.signal}"
    if attempt.outcome is Outcome.HUNG:
        by = "ended by rocsteady"
    how = by if attempt.outcome is Outcome.BY_ITSELF else f"{attempt.outcome.value}, {by}"
    return f"ended{step}: {how}"


def incident_title(incident: Incident) -> str:
    """Name an incident, and the rank that holds up the others."""
    blamed = incident.blame.ranks if incident.blame else ()
    rank = f" on rank {blamed[0].rank}" if len(blamed) == 1 else ""
    where = f" at {incident.place}" if incident.place else ""
    return f"{incident.verdict.value}{rank}{where}"


def _progress(story: RunStory) -> str:
    buckets = story.progress
    if not buckets:
        return ""
    step = buckets[-1].last_step
    if buckets[-1].attempt in crashed_attempts(story):  # what was seen last is not on disk
        return f" (at least {plural(step, 'step')})"
    total = next((b.total for b in reversed(buckets) if b.total is not None), None)
    if total is None or total < step:  # a count of something else, such as epochs
        return f" ({plural(step, 'step')})"
    return f" ({step:,} of {total:,} steps)"


def _trouble(story: RunStory) -> str:
    attempts = plural(len(story.attempts), "attempt")
    if crashed := crashed_attempts(story):
        which = ", ".join(map(str, crashed))
        crash = f"The machine crashed during attempt {which}."
        if len(story.attempts) == 1:
            return crash
        attempts = f"{crash} {attempts}"
    if len(story.attempts) <= 1 and not story.incidents and not story.failures:
        return f"{attempts}, no incidents."
    kinds: dict[str, int] = {}
    for attempt in story.attempts:
        failure = failure_of(story, attempt.number)
        if failure is not None:
            kinds[failure.title.rstrip(".")] = kinds.get(failure.title.rstrip("."), 0) + 1
    named = "; ".join(
        inside_a_sentence(title) + (f" ({count} times)" if count > 1 else "")
        for title, count in kinds.items()
    )
    lost = f", {duration(story.seconds_lost)} lost to failures and restarts"
    return f"{attempts}{lost * (story.seconds_lost > 0)}{f'. Cause: {named}' if named else ''}."
