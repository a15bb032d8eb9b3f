"""What the watcher of one host tells the others of its ranks, and when all of a job are stuck.

A host tells this only when its own ranks are stuck, if those of other hosts are: each of them waits
for another, or for a collective. The job hangs if that is true of all hosts at one moment: then
nobody is left who could end a wait. One rank that does anything keeps its host from telling it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rocsteady.blame import Blame, RankRecord, blame
from rocsteady.evidence.values import Heartbeat, Snapshot
from rocsteady.pulse.stack_place import is_of
from rocsteady.pulse.verdict import RunState, Verdict
from rocsteady.pulse.wait_chain import training
from rocsteady.vocabulary import Value

COLLECTIVES = "distributed/distributed_c10d.py"


class RankSummary(Value, frozen=True, kw_only=True):
    """One rank that does not move."""

    rank: int
    step: int
    phase: str
    collective: str = ""  # that it is in, as its stack names it: "all_reduce"
    line: str = ""  # of the user's code: "train.py:12 step"
    waits_for: str = ""  # "lock 0x7f2c", "socket 4711"; "": not known


class HostSummary(Value, frozen=True, kw_only=True):
    """The ranks of one host."""

    host: int = 0
    world: int  # how many ranks the job has
    stuck: bool  # if the ranks of other hosts are
    ranks: tuple[RankSummary, ...]
    records: tuple[RankRecord, ...] = ()  # the same ranks, for finding the one to blame


def alone(heartbeats: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
    """Return heartbeats as if the ranks of this host were all: a verdict is then conditional."""
    here = len({beat.rank for beat in heartbeats if beat.rank is not None})
    return tuple(
        msgspec.structs.replace(beat, world=here) if (beat.world or 1) > here > 0 else beat
        for beat in heartbeats
    )


def summarise(
    heartbeats: tuple[Heartbeat, ...], verdict: Verdict, snapshot: Snapshot | None
) -> HostSummary:
    """Say what the ranks of this host do. ``heartbeats`` tell the size of the whole job."""
    waits = {
        member.pid: member
        for member in (verdict.waits.members if verdict.waits else ())
        if member.trains
    }
    frames = {
        (process.pid, thread.tid): thread.frames or ()
        for process in (snapshot.processes if snapshot else ())
        for thread in process.threads
    }
    ranks = tuple(
        RankSummary(
            rank=beat.rank,
            step=beat.base + beat.step,
            phase=beat.phase,
            collective=_collective(frames.get((beat.pid, beat.thread), ())),
            line=waits[beat.pid].place if beat.pid in waits else "",
            waits_for=waits[beat.pid].on if beat.pid in waits else "",
        )
        for beat in training(heartbeats)
        if beat.rank is not None
    )
    return HostSummary(
        world=max([len(ranks), *(beat.world or 1 for beat in heartbeats)]),
        stuck=verdict.condition is RunState.HUNG,
        ranks=tuple(sorted(ranks, key=lambda each: each.rank)),
        records=verdict.ranks,
    )


def job_hangs(hosts: Sequence[HostSummary]) -> bool:
    """Tell whether all ranks of a job wait for each other: none is missing, and none is busy."""
    told = sorted(each.rank for host in hosts for each in host.ranks)
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


def _collective(frames: Sequence[str]) -> str:
    """Name the outermost function of torch's collectives: what the user's code has called."""
    found = [frame for frame in frames if is_of(frame, COLLECTIVES)]
    return found[-1].partition(" (")[0] if found else ""
