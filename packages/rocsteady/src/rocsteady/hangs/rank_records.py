"""What each rank of this machine does, from its heartbeat and one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rocsteady.hangs.blame import RankRecord, WaitsFor
from rocsteady.hangs.stack_frames import (
    KnownWaits,
    below_users_code,
    in_collective,
    is_of,
    place_of,
)
from rocsteady.hangs.trainers import trainers
from rocsteady.hangs.values import Heartbeat, Snapshot, ThreadSeen, Wait

LOADER = "data/dataloader.py"
# Code of PyTorch that may be in a collective which only the native stack would show.
MAY_BE_COLLECTIVE = ("autograd/graph.py", "autograd/__init__.py", "parallel/distributed.py")
BY_CALL = {
    Wait.NOTHING: WaitsFor.NOTHING,
    Wait.LOCK: WaitsFor.LOCK,
    Wait.TREE: WaitsFor.PROCESS,
    Wait.CHILD: WaitsFor.PROCESS,
    Wait.WORLD: WaitsFor.WORLD,
    Wait.DISK: WaitsFor.WORLD,
    Wait.SLEEP: WaitsFor.TIME,
    Wait.DEVICE: WaitsFor.GPU,
    Wait.STOPPED: WaitsFor.STOPPED,
    Wait.TRACED: WaitsFor.STOPPED,
}


class CollectiveCount(NamedTuple):
    """How many collectives a rank has launched, and which was the last."""

    number: int
    last: str


def rank_records(
    snapshot: Snapshot,
    heartbeats: Iterable[Heartbeat],
    known: KnownWaits,
    *,
    gpus: Mapping[int, str] | None = None,
    launched: Mapping[int, CollectiveCount] | None = None,
) -> tuple[RankRecord, ...]:
    """Return a record for each rank; ``gpus`` are by process, ``launched`` by rank."""
    threads = {
        (process.pid, thread.tid): thread
        for process in snapshot.processes
        for thread in process.threads
    }
    stopped = {
        process.pid
        for process in snapshot.processes
        if any(thread.wait in (Wait.STOPPED, Wait.TRACED) for thread in process.threads)
    }
    records = []
    for beat in _one_a_rank(tuple(heartbeats)):
        thread = threads.get((beat.pid, beat.thread))
        did = (launched or {}).get(beat.rank or 0)
        waits = WaitsFor.STOPPED if beat.pid in stopped else _waits_for(beat, thread, known)
        records.append(
            RankRecord(
                rank=beat.rank or 0,
                gpu=(gpus or {}).get(beat.pid, ""),
                pid=beat.pid,
                step=beat.base + beat.step,
                phase=beat.phase,
                place=place_of(thread.frames) if thread and thread.frames else "",
                waits_for=waits,
                collectives=did.number if did else None,
                collective=did.last if did else "",
            )
        )
    return tuple(records)


def _one_a_rank(heartbeats: tuple[Heartbeat, ...]) -> list[Heartbeat]:
    """Return one heartbeat a rank: of those that train, else of one whose script is done."""
    told = [beat for beat in heartbeats if beat.rank is not None]
    by_rank = {beat.rank: beat for beat in told if beat.ended}
    by_rank |= {beat.rank: beat for beat in trainers(tuple(told)) if not beat.ended}
    return [by_rank[rank] for rank in sorted(by_rank, key=lambda rank: rank or 0)]


def _waits_for(beat: Heartbeat, thread: ThreadSeen | None, known: KnownWaits) -> WaitsFor:
    if beat.ended or thread is None:
        return WaitsFor.ENDED if beat.ended else WaitsFor.UNKNOWN
    native = thread.native or ()
    if known.device(native) is not None:
        return WaitsFor.GPU
    if thread.frames is None:
        return WaitsFor.UNKNOWN
    if in_collective(thread, known):
        return WaitsFor.RANKS
    below = below_users_code(thread.frames)
    if any(is_of(frame, LOADER) for frame in below):
        return WaitsFor.LOADER
    waits = BY_CALL.get(thread.wait, WaitsFor.UNKNOWN)
    torchs = any(is_of(frame, *MAY_BE_COLLECTIVE) for frame in below)
    return WaitsFor.MAYBE_RANKS if torchs and waits is not WaitsFor.NOTHING else waits
