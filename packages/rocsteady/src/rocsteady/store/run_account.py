"""An account of a run from its records: how its attempts ended, what followed, what it cost."""

from __future__ import annotations

from rocsteady.model import Decision, Failure, IntentKind, Outcome, Value
from rocsteady.store.values import (
    AttemptRecord,
    Incident,
    RunRecord,
    paused_between,
)
from rocsteady.wording import capitalized


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

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """Return the parts of the whole by name, without those that took no time."""
        parts = (
            ("training", self.useful),
            ("starting", self.starting),
            ("stalled and restarting", self.idle),
            ("repeating steps", self.redone),
            ("paused", self.paused),
        )
        return tuple((name, seconds) for name, seconds in parts if seconds > 0)


def costs_of(record: RunRecord, at: float) -> Costs:
    """Return where the time of a run went, until it ended or until now."""
    begun = [b.first_progress for b in record.progress if b.first_progress is not None]
    end = record.run.ended or at
    whole = max(0.0, end - record.run.started)
    first = min(begun, default=None)
    return Costs(
        whole=whole,
        idle=sum(loss.idle for loss in record.losses) + _down(record, end),
        redone=sum(loss.redoing for loss in record.losses),
        starting=whole if first is None else max(0.0, first - record.run.started),
        paused=paused_between(record.intents, first or record.run.started, end),
    )


def _down(record: RunRecord, end: float) -> float:
    """Return the time from the last progress to a crash of the machine, and after it."""
    if not record.attempts or record.attempts[-1].number not in crashed_attempts(record):
        return 0.0
    last = record.attempts[-1]
    seen = [b.last_progress for b in record.progress if b.attempt == last.number]
    return max(0.0, end - max((at for at in seen if at is not None), default=last.started))


def ended_well(attempt: AttemptRecord) -> bool:
    return attempt.outcome is Outcome.BY_ITSELF and attempt.exit_code == 0


def has_trained(record: RunRecord) -> bool:
    """Return whether the training was done when something after it failed."""
    result = record.attempts[-1].result if record.attempts else None
    return result is not None and result.trained


def end_of(attempt: AttemptRecord, *, in_progress: bool = False, crashed: bool = False) -> str:
    if in_progress:
        return "in progress"
    if attempt.ended is None:
        return f"cut off: {'the machine crashed' if crashed else 'rocsteady was killed'}"
    by = f"signal {attempt.signal}" if attempt.signal else f"exit code {attempt.exit_code}"
    if attempt.outcome is Outcome.HUNG:
        return str(attempt.outcome.value)
    return by if attempt.outcome is Outcome.BY_ITSELF else f"{attempt.outcome.value}, {by}"


def incident_title(incident: Incident) -> str:
    blamed = incident.blame.ranks if incident.blame else ()
    rank = f" on rank {blamed[0].rank}" if len(blamed) == 1 else ""
    place = (blamed[0].place if rank else "") or incident.cause
    where = f" at {place}" if place else ""
    return f"{incident.verdict.value}{rank}{where}"


def open_incident(record: RunRecord) -> Incident | None:
    """Return the incident of the last attempt, as long as nothing is decided about it."""
    last = record.incidents[-1] if record.incidents else None
    if last is None or last.attempt < len(record.attempts):
        return None
    return None if decision_after(record, last.attempt) else last


def crashed_attempts(record: RunRecord) -> tuple[int, ...]:
    return tuple(
        intent.attempt
        for intent in record.intents
        if intent.kind is IntentKind.START and intent.crashed_machine and intent.attempt is not None
    )


def decision_after(record: RunRecord, attempt: int) -> Decision | None:
    return next(
        (each.decision for each in reversed(record.decisions) if each.attempt == attempt), None
    )


def failure_after(record: RunRecord, attempt: int) -> Failure | None:
    return next((row.failure for row in record.failures if row.attempt == attempt), None)


def decision_sentence(decision: Decision) -> str:
    if decision.ends:
        return "Ended the run."
    if decision.changes_nothing:
        return "Restarted without changes."
    what = "another option of the plan" if decision.fallback else decision.what
    return f"Restarted with {what}."


def decision_with_reason(decision: Decision) -> str:
    """Return what was done and why; the reason for a retry says that nothing is changed."""
    done = "Restarted." if decision.changes_nothing else decision_sentence(decision)
    return f"{done} {capitalized(decision.why.rstrip('.'))}."


def end_with_step(end: str, last_step: int | None, *, ended_well: bool) -> str:
    step = "" if last_step is None else f" at step {last_step:,}"
    return f"finished{step}" if ended_well else f"{end}{step}"
