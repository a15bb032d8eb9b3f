"""What moved between two snapshots, among the threads and processes that the training depends on.

CPU time alone is no proof of work for a thread that runs: a hung ROCm process spins. For one that
is found waiting each time it is: it was free in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rocsteady.hangs.stack_frames import KnownWaits
from rocsteady.hangs.values import ProcessSeen, Snapshot, ThreadSeen, Wait
from rocsteady.hangs.wait_set import IDLE_SHARE, Activity, Member

BUSY_SHARE = 0.5  # of a core: a child above it works, even if it is not known who waits for it
BAR_RATE = 64 << 10  # bytes a second: a progress bar redrawn ten times a second writes 20 KiB
BY_SNAPSHOT = 4  # times that a snapshot with native frames may wake a thread
GROWTH_RATE = 1 << 20  # bytes of memory a second


class Moved(NamedTuple):
    """What moved, for a person, and where."""

    what: str
    pid: int
    member: Member | None = None
    works: bool = True  # more than the stack of a thread beside the training, such as a bar's


def moved(
    before: Snapshot, now: Snapshot, members: tuple[Member, ...], known: KnownWaits
) -> tuple[Moved, ...]:
    """Return the signs of life since the snapshot before."""
    seconds = now.at - before.at
    return tuple(_signs(before, now, members, known)) if seconds > 0 else ()


def _signs(
    before: Snapshot, now: Snapshot, members: tuple[Member, ...], known: KnownWaits
) -> Iterator[Moved]:
    seconds = now.at - before.at
    earlier = {process.pid: process for process in before.processes}
    threads = {
        (process.pid, thread.tid): thread
        for process in before.processes
        for thread in process.threads
    }
    for member in members:
        old = threads.get(member.key)
        what = _thread_moved(old, member, seconds, known) if old else "has a new thread"
        if what:
            works = member.trains or what == "computes"
            yield Moved(what, member.process.pid, member, works)
    trainers = {member.process.pid for member in members if member.trains}
    processes = {member.process.pid: member.process for member in members}
    for pid, process in processes.items():
        what = _process_moved(earlier.get(pid), process, seconds, bar=pid in trainers)
        if what:
            yield Moved(what, pid)
    yield from _family(earlier, now, set(processes), seconds)


def _thread_moved(old: ThreadSeen, member: Member, seconds: float, known: KnownWaits) -> str:
    new = member.thread
    share = (new.cpu - old.cpu) / seconds
    inside = member.activity is Activity.WAITS_INSIDE
    for_others = not member.trains and member.activity is not Activity.WAITS_FOR_GPU
    if old.frames is not None and new.frames is not None and old.frames != new.frames:
        return "moves"
    if share >= IDLE_SHARE and (inside or for_others):
        return "computes"
    woken = old.wait is new.wait is Wait.WORLD and new.switches - old.switches > BY_SNAPSHOT
    if woken:
        return "sends or receives"
    rests = share < IDLE_SHARE and old.wait is new.wait and inside
    if not rests and old.native is not None and new.native is not None:
        return "moves" if _outer(old.native, known) != _outer(new.native, known) else ""
    return ""


def _outer(native: tuple[str, ...], known: KnownWaits) -> tuple[str, ...]:
    """Leave out what a device wait itself calls: it asks for the time, and asks again."""
    return native[known.device(native) or 0 :]


def _process_moved(old: ProcessSeen | None, new: ProcessSeen, seconds: float, *, bar: bool) -> str:
    if old is None:
        return "is new"
    done = new.read_bytes - old.read_bytes + new.written_bytes - old.written_bytes
    if done / seconds > (BAR_RATE if bar else 0):
        return "reads or writes"
    if (new.rss_bytes - old.rss_bytes) / seconds >= GROWTH_RATE:
        return "takes more memory"
    return ""


def _family(
    earlier: dict[int, ProcessSeen], now: Snapshot, pids: set[int], seconds: float
) -> Iterator[Moved]:
    """Yield what the children of these processes show, though nobody is seen to wait for them."""
    for pid in pids & {process.parent for process in earlier.values()}:
        alive = {process.pid for process in now.processes}
        for old in earlier.values():
            if old.parent == pid and old.pid not in alive and _lived(old):
                yield Moved("saw a child end", pid)
    for process in now.processes:
        old_one = earlier.get(process.pid)
        if process.parent not in pids:
            continue
        if old_one is None:
            yield Moved("has a new child", process.parent)
        elif (_cpu(process) - _cpu(old_one)) / seconds >= BUSY_SHARE:
            yield Moved("computes", process.pid)


def _lived(process: ProcessSeen) -> bool:
    return any(thread.state != "Z" for thread in process.threads)


def _cpu(process: ProcessSeen) -> float:
    return sum(thread.cpu for thread in process.threads)
