"""A look at a process that was started without rocsteady: whether it is stuck, and where.

Without a heartbeat there are no steps and no usual pauses to compare with, so only what a few
snapshots prove is called stuck. Nothing is changed, restarted or installed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from datetime import timedelta
from enum import Enum

from msgspec.structs import replace

from rocsteady.doctor.knowledge.waits import WaitKnowledge
from rocsteady.errors import ExaminationError
from rocsteady.hangs.judgment.judgment import Pulse, begin, worth_stopping
from rocsteady.hangs.judgment.snapshot_reading import HELD, Reading, read
from rocsteady.hangs.looking.process_tree import gpus_of, processes, trainings
from rocsteady.hangs.looking.snapshot import take_snapshot
from rocsteady.hangs.looking.stacks import KeptStacks, KnownStacks
from rocsteady.hangs.proof.stack_frames import queue_of
from rocsteady.hangs.proof.wait_graph import wait_set
from rocsteady.hangs.proof.wait_set import Waiter, WaitSet, prove, waiters_of
from rocsteady.hangs.values import Snapshot, Wait, WayOut
from rocsteady.model import Value
from rocsteady.system import procfs

SNAPSHOTS, SNAPSHOT_EVERY = 3, 0.7  # snapshots, and seconds between them
A_SNAPSHOT = timedelta(seconds=4)  # at most
MORE_SNAPSHOTS = 6  # more, at a thread that computes, before it is stopped
LONGEST_POLL = 7.0  # seconds: torch's own loops ask again every 5


class ProcessState(Enum):
    STUCK = "stuck"  # proven: nothing can end the wait
    WAITING = "waiting"  # for something that may come
    WORKING = "working"
    STOPPED = "stopped"  # by a signal or a debugger
    UNSEEN = "not visible"  # no stacks could be read


class Inspection(Value, frozen=True, kw_only=True):
    version: int = 1
    pid: int
    command: tuple[str, ...]
    age: float  # seconds since it was started
    state: ProcessState
    why: str  # a clause
    place: str  # "train.py:24 load"
    waiters: tuple[Waiter, ...]  # the main thread first
    ways_out: tuple[str, ...]  # what may still end the wait; clauses
    processes: int
    memory_bytes: int
    gpus: str
    seconds: float  # that this took


class Inspected(Value, frozen=True, kw_only=True):
    """The answer, and the snapshots that it was read from."""

    inspection: Inspection
    snapshots: tuple[Snapshot, ...]
    culprit: int | None


class Candidate(Value, frozen=True, kw_only=True):
    pid: int
    command: tuple[str, ...]
    age: float


class Candidates(Value, frozen=True, kw_only=True):
    """What may be meant by "my training"."""

    version: int = 1
    processes: tuple[Candidate, ...]


def candidates() -> Candidates:
    """List the processes that train with PyTorch, as far as this user may look."""
    found = []
    for pid in trainings() if os.name != "nt" else ():
        with contextlib.suppress(OSError):  # gone meanwhile
            age = procfs.age(procfs.stat(pid))
            found.append(Candidate(pid=pid, command=procfs.command(pid), age=age))
    return Candidates(processes=tuple(found))


def inspect(pid: int, waits: WaitKnowledge) -> Inspected:
    """Take snapshots of a process and its children until it is clear how it stands."""
    began = time.monotonic()
    _existing(pid)
    known, pulse = KnownStacks(KeptStacks(), KeptStacks()), begin(began, began)
    snapshots: list[Snapshot] = []
    sets: list[WaitSet] = []
    while True:
        seen = take_snapshot(
            [each for each in processes(pid) if each != os.getpid()],
            stacks=True,
            within=A_SNAPSHOT,
            native=lambda found: _worth_stopping(pulse, found, waits),  # noqa: B023 - called at once
            known=known,
        )
        about = _existing(pid)
        snapshots.append(seen)
        sets.append(wait_set(seen, (), waits))
        reading = read(pulse.before, seen, sets[-1], (), waits)
        pulse = replace(pulse, before=seen)
        proof, took = prove(sets), time.monotonic() - began
        if len(sets) >= SNAPSHOTS and not (_may_ask_again(sets, proof) and took < LONGEST_POLL):
            break
        time.sleep(SNAPSHOT_EVERY)
    state, why = _state(seen, sets, proof, reading)
    why = why.replace("the training thread", "its main thread")  # nobody told which one trains
    waiters = waiters_of(sets[-1])
    queues = [queue_of(each.frames) for each in waiters if each.place == reading.place]
    if queues and queues[0]:
        why = why.replace("waiting for a lock", f"waiting for {queues[0]}")
    ways_out = [f"thread {each.tid} of process {each.pid} {each.what}" for each in proof.exits]
    ways_out += proof.handlers
    inspection = Inspection(
        pid=pid,
        command=procfs.command(pid),
        age=procfs.age(about),
        state=state,
        why=why,
        place=reading.place,
        waiters=waiters,
        ways_out=tuple(dict.fromkeys(ways_out)) if state is ProcessState.WAITING else (),
        processes=len(seen.processes),
        memory_bytes=sum(each.rss_bytes for each in seen.processes),
        gpus=gpus_of(pid),
        seconds=took,
    )
    return Inspected(inspection=inspection, snapshots=tuple(snapshots), culprit=reading.culprit)


def _worth_stopping(pulse: Pulse, seen: Snapshot, waits: WaitKnowledge) -> Collection[int]:
    """Return the processes to stop for their native frames.

    A thread that computes may have been at the same line twice by chance. It is looked at again,
    without stopping it, as the stop takes a second with a library of torch's size.
    """
    wanted = worth_stopping(pulse, seen, waits)
    for _ in range(MORE_SNAPSHOTS):
        threads = [it for each in seen.processes if each.pid in wanted for it in each.threads]
        if not any(thread.wait is Wait.NOTHING for thread in threads):
            break
        pulse = replace(pulse, before=seen)
        pids = [each.pid for each in seen.processes]
        seen = take_snapshot(pids, stacks=True, within=A_SNAPSHOT)
        wanted = worth_stopping(pulse, seen, waits)
    return wanted


def _existing(pid: int) -> procfs.Stat:
    if os.name == "nt":
        raise ExaminationError("processes cannot be inspected on native Windows")
    with contextlib.suppress(OSError, ValueError, IndexError):
        about = procfs.stat(pid)
        if not about.dead:
            return about
    raise ExaminationError(f"there is no process {pid}, or it has ended")


def _may_ask_again(sets: list[WaitSet], proof: WaitSet) -> bool:
    """Whether only a loop that asks again every few seconds is between this and a proof."""
    ways = {each.way for each in proof.exits}
    return ways == {WayOut.TIMEOUT} and all(each.closed for each in sets)


def _state(
    seen: Snapshot, sets: list[WaitSet], proof: WaitSet, reading: Reading
) -> tuple[ProcessState, str]:
    if reading.activity in HELD:
        return ProcessState.STOPPED, reading.why
    if not seen.stacks:
        return ProcessState.UNSEEN, f"no stacks could be read ({seen.why_no_stacks})"
    if reading.moves:
        return ProcessState.WORKING, reading.why
    if all(each.closed for each in sets) and proof.closed and not proof.handlers:
        return ProcessState.STUCK, f"{reading.why}, and nothing can end that wait"
    return ProcessState.WAITING, reading.why
