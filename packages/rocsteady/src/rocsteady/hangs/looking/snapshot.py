"""One look at a process tree: what every thread does, what it waits for, and where its code is."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

import msgspec

from rocsteady.hangs.looking.cgroups import is_frozen
from rocsteady.hangs.looking.stacks import (
    KeptStacks,
    KnownStacks,
    Ran,
    Stacks,
    ThreadStack,
    take_stacks,
)
from rocsteady.hangs.proof.waits import Waits
from rocsteady.hangs.values import ProcessSeen, Snapshot, ThreadSeen, Wait
from rocsteady.system import procfs
from rocsteady.system.parallel import run_all
from rocsteady.system.procfs import PROC

PROC_SHARE = 0.5  # of the time, that /proc may take for one thread; stacks have at least as much
PYTHONS_WAITS = ("/threading.py:", "/queue.py:", "(multiprocessing/", "/selectors.py:")
TORCHS_WAITS = ("(autograd/", "(distributed/", "(cuda/")
MAX_DEEPER = 16  # processes paused for their native frames in one snapshot
PYTHONS_POLL = "/selectors.py:"
RETRYING = ("gloo_tcp_loop", "pt_tcpstore", "pt_tcpstore_uv")  # threads, as the kernel names them
NO_PYTHON = "none of its processes runs Python"
NOT_ON_WINDOWS = "processes cannot be inspected on native Windows"
_UNREADABLE = (OSError, ValueError, IndexError)  # gone, or changing under our eyes


def take_snapshot(  # noqa: PLR0913 - how closely, each by name
    pids: Sequence[int],
    *,
    stacks: bool,
    within: timedelta,
    native: Callable[[Snapshot], Collection[int]] | None = None,
    known: KnownStacks | None = None,
    py_spy: str | None = None,
) -> Snapshot:
    """Look at these processes, and be back in time, unless they are many: see ``_see_all``.

    Those that ended are left out. Nothing is stopped, unless ``native`` says, by all that is seen
    without, of which processes native frames are worth a pause. Stacks that are ``known`` and hold
    are not taken again.
    """
    if os.name == "nt":
        return Snapshot(
            at=time.monotonic(), processes=(), stacks=False, why_no_stacks=NOT_ON_WINDOWS
        )
    at = time.monotonic()
    seen = _see_all(pids, within * PROC_SHARE)
    until = max(at + within.total_seconds(), time.monotonic() + within.total_seconds() * PROC_SHARE)
    if not stacks:
        return Snapshot(at=at, processes=tuple(seen), stacks=False, why_no_stacks="not asked for")
    known = known or KnownStacks(KeptStacks(), KeptStacks())
    pythons = {process.pid: process for process in seen if process.python}
    again = [each for each in pythons.values() if not known.python.still(each, each.threads)]
    same = known.python.of(pythons.keys() - {each.pid for each in again})
    taken = take_stacks([each.pid for each in again], within=_left(until), py_spy=py_spy)
    # By what was seen before: what runs while it is read is not where it was read.
    known.python.keep(again, taken, lambda _, thread: (thread.switches, thread.ran))
    found = Stacks(threads=same.threads | taken.threads, missing=taken.missing)
    snapshot = Snapshot(
        at=at,
        processes=tuple(_with_stacks(process, found) for process in seen),
        stacks=bool(found.threads),
        why_no_stacks="" if found.threads else next(iter(found.missing.values()), NO_PYTHON),
    )
    wanted = set(native(snapshot)) & pythons.keys() if native else set()
    return _with_native(snapshot, wanted, known.native, _left(until), py_spy)


def _with_native(
    seen: Snapshot, wanted: set[int], known: KeptStacks, within: timedelta, py_spy: str | None
) -> Snapshot:
    """Add the native frames of these processes; they are stopped where they may have moved."""
    processes = [process for process in seen.processes if process.pid in wanted]
    again = [process for process in processes if not known.still(process, _telling(process))]
    same = known.of(process.pid for process in processes if process not in again)
    deeper = take_stacks(
        [process.pid for process in again],
        within=within,
        native=True,
        retrying={thread.tid for each in again for thread in each.threads if _retries(thread)},
        py_spy=py_spy,
    )
    # By what is seen after: the pause itself makes a thread run.
    known.keep(again, deeper, lambda pid, thread: _ran(pid, thread.tid))
    found = (_with_stacks(_with_stacks(process, same), deeper) for process in seen.processes)
    return msgspec.structs.replace(
        seen, processes=tuple(found), stacks=seen.stacks or bool(deeper.threads)
    )


def in_native_code(seen: Snapshot) -> list[int]:
    """Return processes that are at something in native code: only its frames tell what that is."""
    found = [each.pid for each in seen.processes if any(map(is_in_native_code, each.threads))]
    return found[:MAX_DEEPER]


def _left(until: float) -> timedelta:
    return timedelta(seconds=max(0.0, until - time.monotonic()))


def _see_all(pids: Sequence[int], within: timedelta) -> list[ProcessSeen]:
    """See one after the other in a thread of its own, and keep what it has when it gets no further.

    Those that were not reached would look as if they had ended, so many get the time they need.
    """
    seen: list[ProcessSeen] = []
    threads: list[ThreadSeen] = []

    def see() -> None:
        living = {}
        for pid in pids:
            with contextlib.suppress(*_UNREADABLE):
                living[pid] = procfs.stat(pid).parent
        waits = Waits(living)
        for pid in living:
            process = _see(pid, waits, threads)
            if process is not None:
                seen.append(process)

    run_all({"all": see}, within=within, done=threads)
    return list(seen)


def _own_memory(pid: int, resident: int) -> int:
    """Leave out pages of files: to read a native stack brings more of those into memory."""
    try:
        shared = int(procfs.text(f"{PROC}/{pid}/statm").split()[2])
    except _UNREADABLE:
        return resident
    return max(0, resident - shared * procfs.PAGE)


def _see(pid: int, waits: Waits, done: list[ThreadSeen]) -> ProcessSeen | None:
    """Describe a process; None if it has ended. Its threads are added to those that are done."""
    try:
        stat = procfs.stat(pid)
        tids = sorted(procfs.numbers(f"{PROC}/{pid}/task"))
    except _UNREADABLE:
        return None
    if stat.dead:
        return None
    frozen = is_frozen(pid)
    read_bytes, written_bytes = _traffic(pid)
    first = len(done)
    for tid in tids:
        thread = _see_thread(pid, tid, waits, frozen=frozen)
        done += [thread] if thread else []
    return ProcessSeen(
        pid=pid,
        parent=stat.parent,
        name=stat.name,
        python=_runs_python(pid, stat.name),
        read_bytes=read_bytes,
        written_bytes=written_bytes,
        rss_bytes=_own_memory(pid, stat.rss_bytes),
        threads=tuple(done[first:]),
        handlers=_handlers(pid),
        timers=_timers(pid),
        unanswered=waits.unanswered(pid),
    )


def _see_thread(pid: int, tid: int, waits: Waits, *, frozen: bool) -> ThreadSeen | None:
    try:
        stat = procfs.stat(pid, tid)
        decoded = waits.of(pid, tid, stat.state)
    except _UNREADABLE:
        return None
    switches, ran = _ran(pid, tid)  # last: what runs meanwhile is seen to have run
    return ThreadSeen(
        tid=tid,
        name=stat.name,
        state=stat.state,
        cpu=stat.cpu,
        switches=switches,
        ran=ran,
        start=stat.start,
        wait=Wait.WORLD if frozen else decoded.wait,
        blocked=None if frozen else decoded.blocked,
    )


def _handlers(pid: int) -> tuple[int, ...] | None:
    """Return the signals that a process has handlers for; None if that is not known."""
    try:
        bits = int(procfs.fields(f"{PROC}/{pid}/status")["SigCgt"], 16)
    except (OSError, ValueError, KeyError):
        return None
    return tuple(number for number in range(1, 65) if bits >> (number - 1) & 1)


def _timers(pid: int) -> int:
    """Count POSIX timers. Where the kernel does not list them, their handlers are seen."""
    try:
        lines = procfs.text(f"{PROC}/{pid}/timers").splitlines()
        return sum(line.startswith("ID:") for line in lines)
    except OSError:
        return 0


def _ran(pid: int, tid: int) -> Ran:
    """Return how often a thread ran, and for how long; 0 if that is not told.

    One that sends or receives is woken, and /proc/PID/io leaves that out.
    """
    try:
        words = procfs.text(f"{PROC}/{pid}/task/{tid}/schedstat").split()
        return int(words[2]), int(words[0])
    except _UNREADABLE:
        return 0, 0


def _traffic(pid: int) -> tuple[int, int]:
    """Return all bytes read and written so far; 0 where we may not know."""
    try:
        counts = procfs.fields(f"{PROC}/{pid}/io")
    except OSError:
        return 0, 0
    return (
        procfs.leading_number(counts.get("rchar", "")),
        procfs.leading_number(counts.get("wchar", "")),
    )


def _runs_python(pid: int, name: str) -> bool:
    """Return whether a process runs Python, by its program or a library that embeds it."""
    try:
        program = procfs.link(f"{PROC}/{pid}/exe").rpartition("/")[2]
    except OSError:  # another user's: its name is all we get
        return "python" in name
    if program.startswith(("python", "pypy")):
        return True
    try:
        if procfs.stat(pid).state == "D":  # its map may be locked
            return False
        return b"libpython" in procfs.read(f"{PROC}/{pid}/maps", procfs.LARGE)
    except _UNREADABLE:
        return False


def _telling(process: ProcessSeen) -> list[ThreadSeen]:
    """Return the threads whose native frames are wanted: without any in native code, all."""
    threads = [thread for thread in process.threads if is_in_native_code(thread)]
    return threads or [thread for thread in process.threads if thread.frames is not None]


def _retries(thread: ThreadSeen) -> bool:
    """Whether the code that a thread is in repeats a call that was interrupted: Python, gloo."""
    return thread.name in RETRYING or bool(thread.frames and PYTHONS_POLL in thread.frames[0])


def is_in_native_code(thread: ThreadSeen) -> bool:
    """Return whether a thread runs, or is blocked below a call that is not one of Python's own."""
    if thread.wait in (Wait.NOTHING, Wait.DEVICE):
        return True
    if not thread.frames:
        return False
    if thread.wait is Wait.SLEEP:  # a collective waits for half an hour, a script just sleeps
        return any(place in thread.frames[0] for place in TORCHS_WAITS)
    return thread.wait is Wait.LOCK and not any(
        place in thread.frames[0] for place in PYTHONS_WAITS
    )


def _with_stacks(process: ProcessSeen, stacks: Stacks) -> ProcessSeen:
    if process.pid not in stacks.threads:
        return process
    found = {
        # Older Pythons do not tell a thread's number; that of the first is the process's own.
        stack.tid or (process.pid if stack.name == "MainThread" else 0): stack
        for stack in stacks.threads.get(process.pid, ())
    }
    threads = tuple(_with_stack(thread, found.get(thread.tid)) for thread in process.threads)
    return msgspec.structs.replace(process, threads=threads)


def _with_stack(thread: ThreadSeen, stack: ThreadStack | None) -> ThreadSeen:
    if stack is None:
        return thread
    return msgspec.structs.replace(thread, frames=stack.frames, native=stack.native)
