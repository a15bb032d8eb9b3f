"""What the watcher of one host tells the others of its ranks, and when all of a job are stuck.

A host tells this only when its own ranks are stuck, if those of other hosts are: each of them waits
for another, or for a collective. The job hangs if that is true of all hosts at one moment: then
nobody is left who could end a wait. One rank that does anything keeps its host from telling it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rocsteady.hangs.blame import Blame, RankRecord, blame
from rocsteady.hangs.trainers import trainers
from rocsteady.hangs.values import Heartbeat
from rocsteady.hangs.verdict import Verdict
from rocsteady.model import RunState, Value


class HostSummary(Value, frozen=True, kw_only=True):
    """The ranks of one host."""

    host: int = 0
    world: int  # how many ranks the job has
    stuck: bool  # if the ranks of other hosts are
    ranks: tuple[int, ...]  # that train here
    records: tuple[RankRecord, ...] = ()  # of those that a snapshot has, to find the one to blame


def alone(heartbeats: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
    """Return heartbeats as if the ranks of this host were all: a verdict is then conditional."""
    here = len({beat.rank for beat in heartbeats if beat.rank is not None})
    return tuple(
        msgspec.structs.replace(beat, world=here) if (beat.world or 1) > here > 0 else beat
        for beat in heartbeats
    )


def summarise(heartbeats: tuple[Heartbeat, ...], verdict: Verdict) -> HostSummary:
    """Say which ranks are on this host. ``heartbeats`` tell the size of the whole job."""
    ranks = sorted(beat.rank for beat in trainers(heartbeats) if beat.rank is not None)
    return HostSummary(
        world=max([len(ranks), *(beat.world or 1 for beat in heartbeats)]),
        stuck=verdict.condition is RunState.HUNG,
        ranks=tuple(ranks),
        records=verdict.ranks,
    )


def job_hangs(hosts: Sequence[HostSummary]) -> bool:
    """Tell whether all ranks of a job wait for each other: none is missing, and none is busy."""
    told = sorted(rank for host in hosts for rank in host.ranks)
    world = max((host.world for host in hosts), default=0)
    return world > 0 and all(host.stuck for host in hosts) and told == list(range(world))


def job_blame(hosts: Sequence[HostSummary]) -> Blame:
    """Say which rank of all hosts holds up the others."""
    records = [
        msgspec.structs.replace(record, host=str(host.host))
        for host in hosts
        for record in host.records
    ]
    return blame(records, max((host.world for host in hosts), default=0))
