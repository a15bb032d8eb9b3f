"""The evidence of a hang, collected before anything is killed; which rank holds up the others."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from rocsteady.doctor.knowledge.waits import WaitKnowledge
from rocsteady.errors import RocsteadyError
from rocsteady.hangs.judgment.blame import blame, rank_records
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.looking.collect import Collected, collect
from rocsteady.hangs.looking.process_tree import gpus_of
from rocsteady.hangs.looking.stacks import KnownStacks
from rocsteady.hangs.values import Heartbeat, world_size
from rocsteady.model import Blame, Sign
from rocsteady.run.attempt.attempt_end import HangEvidence
from rocsteady.run.context import AttemptContext, Services
from rocsteady.store.location import check_own
from rocsteady.system.atomic_file import write_whole


def hang_evidence(  # noqa: PLR0913 - all are keyword arguments
    context: AttemptContext,
    services: Services,
    within: timedelta,
    verdict: Verdict,
    *,
    pids: tuple[int, ...],
    since: float,
    known: KnownStacks,
    heartbeats: Sequence[Heartbeat],
    blame: Blame | None,
) -> HangEvidence:
    """Write what is seen of a hung attempt to the folder of its incident.

    ``blame`` is what all hosts found together, if there are several.
    """
    try:
        check_own(context.spec.records)
        evidence = collect(
            context.spec.records / f"incident-{context.incident}",
            pids=suspects_first(pids, verdict.blame),
            pages=context.pages,
            log=context.log,
            since=since,
            variables=services.known_variables,
            waits=verdict.waits,
            known=known,
            within=within,
        )
    except (OSError, RocsteadyError) as error:  # no folder for it: what is hung is still hung
        why = getattr(error, "strerror", "") or str(error)
        services.announcer.say(f"no evidence could be saved: {why}.")
        evidence = Collected(folder="", missing={"all": why})
    by_evidence = blame_by_evidence(evidence, heartbeats, services.waits)
    blame = blame or more_telling(by_evidence, verdict.blame)
    return HangEvidence(verdict=verdict, evidence=evidence, blame=blame)


def more_telling(by_evidence: Blame | None, before: Blame | None) -> Blame | None:
    """Return the evidence's judgment, or the verdict's if only that one names a rank.

    On a busy machine, a snapshot of a rank may lack what the one before it had.
    """
    names_none = by_evidence is None or by_evidence.sign is Sign.NONE
    return (before or by_evidence) if names_none else by_evidence


RANKS_VERSION = 1  # of ranks.json


def suspects_first(pids: tuple[int, ...], found: Blame | None) -> tuple[int, ...]:
    """Put the processes of the ranks that stand out first: time may be short."""
    suspects = {record.pid for record in found.ranks} if found else set()
    return tuple(sorted(pids, key=lambda pid: pid not in suspects))


def blame_by_evidence(
    evidence: Collected, heartbeats: Sequence[Heartbeat], known: WaitKnowledge
) -> Blame | None:
    """Compare the ranks once more, by the snapshot that has native frames, and write that down.

    None: there are no two ranks to compare.
    """
    snapshot, folder = evidence.snapshot, Path(evidence.folder)
    first = rank_records(snapshot, heartbeats, known) if snapshot else ()
    if snapshot is None or len(first) < 2:  # noqa: PLR2004 - to compare
        return None
    gpus = {record.pid: gpus_of(record.pid) for record in first if record.pid is not None}
    records = rank_records(snapshot, heartbeats, known, gpus=gpus)
    found = blame(records, world_size(heartbeats))
    content = msgspec.json.encode({"version": RANKS_VERSION, "blame": found, "ranks": records})
    with contextlib.suppress(OSError):
        write_whole(folder / "ranks.json", msgspec.json.format(content, indent=1) + b"\n")
    return found
