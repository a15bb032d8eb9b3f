"""A journal that holds the given texts wherever a run can leave one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocsteady.model import (
    Certainty,
    Decision,
    Failure,
    Fingerprint,
    IntentKind,
    Next,
    Outcome,
    Role,
    RunOutcome,
    RunState,
    Strategy,
)
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.values import (
    AttemptRecord,
    DecisionRecord,
    Incident,
    MessageRecord,
    NamedFailure,
)

NAME = "calm-otter"


def write_journal(project: Path, texts: Sequence[str], options: Sequence[str] = ()) -> None:
    """Write a run whose command, variables, log, stacks and paths hold ``texts``."""
    journal = Journal(find_place(project))
    some = list(texts)
    lines = tuple(some)
    try:
        run = journal.begin_run(
            ("python", "train.py", *options, *some),
            job={"name": "job", "command": some, "environment": dict(enumerated(some))},
            strategy=Strategy(variables=dict(enumerated(some))),
            name=NAME,
        )
        failure = Failure(
            kind="script-error",
            title="Error in the script",
            words=f"It said {some[0]}.",
            certainty=Certainty.CERTAIN,
            fingerprint=Fingerprint(kind="script-error", place=f"train.py:31 in {some[0]}"),
            seen=lines,
            also=(("peer-died", Role.CASCADE),),
            traceback="Traceback (most recent call last):\n" + "\n".join(lines),
            sources=("pytorch/pytorch#175431",),
        )
        attempt = AttemptRecord(
            run=run.id,
            number=1,
            strategy=Strategy(variables=dict(enumerated(some))),
            boot_id="b",
            started=1.0,
            ended=2.0,
            exit_code=1,
            outcome=Outcome.BY_ITSELF,
        )
        journal.record(attempt)
        for number, text in enumerate(some, 1):
            incident = Incident(
                run=run.id, attempt=1, number=number, verdict=RunState.HUNG, why=text, place=text,
                quiet=1.0, evidence=f"/data/{text}", at=1.5,
            )  # fmt: skip
            journal.record(incident)
            journal.record(MessageRecord(run=run.id, text=f"said: {text}", at=1.6))
        named = NamedFailure(run=run.id, attempt=1, failure=failure, evidence=some[0], at=1.7)
        journal.record(named)
        journal.record(
            DecisionRecord(
                run=run.id, attempt=1, decision=Decision(next=Next.END, why=some[0]), at=1.8
            )
        )
        journal.intend(IntentKind.START, some[0], run=run.id, attempt=1)
        journal.end_run(run, RunOutcome.NOT_DONE)
    finally:
        assert journal.close()


def enumerated(texts: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"VARIABLE_{number}", text) for number, text in enumerate(texts)]
