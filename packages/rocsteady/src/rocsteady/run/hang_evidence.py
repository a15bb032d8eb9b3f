"""Collects the evidence of a hang before anything is killed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rocsteady.hangs.blame import Blame, Sign
from rocsteady.hangs.collect import Collected, collect
from rocsteady.hangs.native_stacks import NativeStacks
from rocsteady.hangs.values import Heartbeat
from rocsteady.hangs.verdict import Verdict
from rocsteady.hangs.wait_set import sentences
from rocsteady.run.attempt_end import HangEvidence
from rocsteady.run.context import AttemptContext, Services
from rocsteady.run.rank_evidence import blame_by_evidence, suspects_first


def hang_evidence(  # noqa: PLR0913 - each is said by name
    context: AttemptContext,
    services: Services,
    within: timedelta,
    verdict: Verdict,
    *,
    pids: tuple[int, ...],
    since: float,
    known: NativeStacks,
    heartbeats: Sequence[Heartbeat],
    blame: Blame | None,
) -> HangEvidence:
    """Write what is seen of a hung attempt to the folder of its incident.

    ``blame`` is what all hosts found together, if there are several.
    """
    attempt = f"attempt {context.number}"
    try:
        evidence = collect(
            context.spec.records / f"incident-{context.incident}",
            pids=suspects_first(pids, verdict.blame),
            pages=context.pages,
            log=context.log,
            since=since,
            attempt=attempt,
            variables=services.known_variables,
            waits=sentences(verdict.waits) if verdict.waits else (),
            known=known,
            within=within,
        )
    except OSError as error:  # no room for its folder: what is hung is still hung
        why = error.strerror or str(error)
        services.announcer.say(f"no evidence could be saved: {why}.")
        evidence = Collected(
            folder="", attempt=attempt, seconds=0.0, files=(), missing={"all": why}
        )
    by_evidence = blame_by_evidence(evidence, heartbeats, services.waits, began=since)
    blame = blame or more_telling(by_evidence, verdict.blame)
    return HangEvidence(verdict=verdict, evidence=evidence, blame=blame)


def more_telling(by_evidence: Blame | None, before: Blame | None) -> Blame | None:
    """Return the evidence's judgment, or the verdict's if only that one names a rank.

    On a busy machine, a snapshot of a rank may lack what the one before it had.
    """
    names_none = by_evidence is None or by_evidence.sign is Sign.NONE
    return (before or by_evidence) if names_none else by_evidence
