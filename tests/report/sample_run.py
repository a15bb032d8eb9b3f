"""A run that hung once and finished, with text of others wherever others can write."""

from __future__ import annotations

from msgspec.structs import replace

from rocsteady.model import (
    Blame,
    Certainty,
    Failure,
    Fingerprint,
    IntentKind,
    Next,
    Outcome,
    RankRecord,
    Role,
    RunOutcome,
    RunState,
    Sign,
    Strategy,
)
from rocsteady.report.story import IncidentEvidence, RunFacts, Story, build_story
from rocsteady.store.values import (
    AttemptCost,
    AttemptRecord,
    Bucket,
    Fate,
    Gauge,
    Incident,
    Intent,
    MessageRecord,
    NamedFailure,
    Run,
    RunRecord,
)
from tests import values

AT = 2000.0  # when the report is made


def bucket(attempt: int, minute: int, **options: object) -> Bucket:
    start = 1000.0 + 60 * minute
    fields: dict[str, object] = {
        "run": 1, "attempt": attempt, "start": start, "width": 60, "first_step": 100 * minute,
        "last_step": 100 * minute + 100, "total": 1000, "first_progress": start,
        "last_progress": start + 59, "quiet": 1.0, "seconds_in": {"backward": 40.0, "data": 10.0},
        "seconds_as": {}, "gauges": {"loss": Gauge(least=0.1, most=0.9, mean=0.5, count=3)},
        **options,
    }  # fmt: skip
    return Bucket(**fields)  # type: ignore[arg-type] # as the test says


def record(
    *,
    outcome: RunOutcome = RunOutcome.DONE,
    text: str = "waiting for a lock",
    decided: str = "retry",
    after: Next = Next.AGAIN,
) -> RunRecord:
    run = Run(
        id=1, name="calm-otter", command=("python", "train.py", text), job={}, strategy=Strategy(),
        folder="", machine="m", boot_id="b", process="p", started=1000.0,
        ended=None if outcome is RunOutcome.NONE else 1600.0, outcome=outcome,
    )  # fmt: skip
    failure = Failure(
        kind="hang-in-script", title=f"Hung in {text}", words=text, certainty=Certainty.CERTAIN,
        fingerprint=Fingerprint(kind="hang-in-script"), seen=(text,), sources=(text,),
        also=(("peer-died", Role.CASCADE),), traceback="Traceback\n  in step",
    )  # fmt: skip
    return RunRecord(
        run=run,
        attempts=(
            AttemptRecord(run=1, number=1, strategy=Strategy(variables={"A": text}), boot_id="b",
                          started=1000.0, ended=1300.0, signal=9, last_step=500,
                          outcome=Outcome.HUNG),
            AttemptRecord(run=1, number=2, strategy=Strategy(), boot_id="b", started=1301.0,
                          ended=1600.0, exit_code=0, outcome=Outcome.BY_ITSELF, last_step=1000),
        ),
        incidents=(hang(1, attempt=1, text=text),),
        failures=(NamedFailure(run=1, attempt=1, failure=failure, evidence="", at=1299.0),),
        decisions=(values.decided(decided, text, at=1300.0, next=after),),
        messages=(MessageRecord(run=1, text=text, at=1300.0),),
        intents=(),
        progress=(*(bucket(1, minute) for minute in range(5)), bucket(2, 6), bucket(2, 7)),
        losses=(AttemptCost(attempt=1, idle=20.0, steps_redone=10, redoing=6.0),),
        seconds_lost=26.0,
    )  # fmt: skip


def hang(number: int, *, attempt: int, text: str = "waiting for a lock") -> Incident:
    return Incident(
        run=1, attempt=attempt, number=number, verdict=RunState.HUNG, why=text,
        at=990.0 + 300 * attempt, place=f"train.py:31 {text}", quiet=9.0,
        evidence=f"/home/x/job/.rocsteady/runs/{text}",
        blame=Blame(sign=Sign.WAIT, why=f"rank 1 is {text}", ranks=(RankRecord(rank=1),)),
    )  # fmt: skip


def facts(text: str = "waiting for a lock", **changes: object) -> RunFacts:
    """Return what a report is made from; ``changes`` are of the journal's record."""
    return RunFacts(
        at=AT,
        record=replace(record(text=text), **changes),
        variables={"HSA_ENABLE_SDMA": text},
        evidence=(
            IncidentEvidence(incident=1, waits=(f"the training thread {text}",), stacks=text),
        ),
        log_tail=text,
    )


def story(
    outcome: RunOutcome = RunOutcome.DONE, decided: str = "retry", after: Next = Next.AGAIN
) -> Story:
    told = record(outcome=outcome, decided=decided, after=after)
    return build_story(RunFacts(at=AT, record=told))


def unfinished() -> RunRecord:
    """Return the record of a run whose second attempt has no end."""
    whole = record(outcome=RunOutcome.NONE)
    last = replace(whole.attempts[1], ended=None, outcome=Outcome.NONE, exit_code=None)
    return replace(whole, attempts=(whole.attempts[0], last))


def crashed(attempt: int) -> RunRecord:
    """Return the record of a run that ended with a crash of the machine."""
    whole = record(outcome=RunOutcome.NOT_DONE)
    start = intent(IntentKind.START, attempt=attempt, at=1.0, ended=2.0, outcome="")
    cut = replace(whole.attempts[attempt - 1], ended=None, outcome=Outcome.NONE, last_step=None)
    return replace(
        whole,
        attempts=(*whole.attempts[: attempt - 1], cut),
        incidents=whole.incidents[: attempt - 1],
        failures=whole.failures[: attempt - 1],
        decisions=whole.decisions[: attempt - 1],
        losses=(),
        seconds_lost=0.0,
        intents=(replace(start, fate=Fate.MACHINE_WENT_DOWN),),
    )


def intent(kind: IntentKind, *, attempt: int, at: float, ended: float, outcome: str) -> Intent:
    return Intent(
        id=1, run=1, attempt=attempt, kind=kind, what="", machine="", boot_id="", process="",
        at=at, ended=ended, outcome=outcome,
    )  # fmt: skip
