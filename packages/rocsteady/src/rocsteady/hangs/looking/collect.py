"""Everything that can still be known of an attempt, written down before anything is killed.

Each part has its own thread and a deadline, so that a disk, a driver or a process that is stuck
costs its own file and no other. What could not be read is said, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import read_tail

from rocsteady.hangs.heartbeat_pages import read_notes, read_pages
from rocsteady.hangs.looking.gpu_counters import read_gpu_counters
from rocsteady.hangs.looking.kernel_log import read_kernel_log
from rocsteady.hangs.looking.memory import read_memory
from rocsteady.hangs.looking.snapshot import take_snapshot
from rocsteady.hangs.looking.stacks import KnownStacks
from rocsteady.hangs.proof.wait_set import WaitSet, sentences, waiters_of
from rocsteady.hangs.values import Snapshot, ThreadSeen, Wait
from rocsteady.model import Value
from rocsteady.store.redaction import Secrets, hide_secrets
from rocsteady.system import procfs
from rocsteady.system.atomic_file import write_whole
from rocsteady.system.parallel import run_all

COLLECT_WITHIN = timedelta(seconds=10)
MARGIN = 0.9  # of the time, for the parts; the rest is for coming back
COLLECT_SHARE = 0.7  # of the time, for what a part waits for; the rest is for writing it down
LOG_TAIL = 256 * 1024  # bytes
BETWEEN_PROCESSES = (Wait.TREE, Wait.CHILD)  # waits whose processes are worth naming
MAX_THREADS = 5000  # whose kernel stacks are read


class Collected(Value, frozen=True, kw_only=True):
    """Where it was written, and what could not be read."""

    folder: str
    missing: dict[str, str]  # what, and why: a file's name, or "stacks of 4711"
    snapshot: Snapshot | None = None  # with native frames, where they could be had


class InKernel(Value, frozen=True, kw_only=True):
    """Where a thread is inside the kernel. "" is "not told"."""

    pid: int
    tid: int
    syscall: str
    function: str
    stack: tuple[str, ...]


def collect(  # noqa: PLR0913 - what there is to know of an attempt, each by name
    folder: Path,
    *,
    pids: Sequence[int],
    pages: Path | None,
    log: Path | None,
    since: float,
    variables: Mapping[str, str] | None = None,
    waits: WaitSet | None = None,
    known: KnownStacks | None = None,
    within: timedelta = COLLECT_WITHIN,
) -> Collected:
    """Write all evidence into ``folder`` and be back in time, whatever happens.

    ``since`` is when the attempt began, in seconds of the monotonic clock; ``variables`` are those
    that may be told; ``waits`` says who waits for whom; ``known`` are stacks that were
    read before.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    incident = _Collection(folder, tuple(pids), within * COLLECT_SHARE)
    parts: dict[str, Callable[[], None]] = {
        "stacks": lambda: incident.stacks(known),
        "kernel.txt": lambda: incident.kernel(since),
        "memory.json": lambda: incident.put_json("memory.json", read_memory(pids)),
        "gpu.json": incident.gpu,
        "variables.json": lambda: incident.put_json("variables.json", dict(variables or {})),
        "pages.json": lambda: incident.pages(pages),
        "log-tail.txt": lambda: incident.log_tail(log),
    }
    if waits is not None:
        parts["wait-set.txt"] = lambda: incident.waits(waits)
    done = run_all(parts, within=within * MARGIN, at_once=len(parts))
    return Collected(
        folder=str(folder),
        missing={**incident.missing, **done.missing},
        snapshot=incident.snapshot,
    )


class _Collection:
    def __init__(self, folder: Path, pids: tuple[int, ...], within: timedelta) -> None:
        self._folder, self._pids, self._within = folder, pids, within
        self.missing: dict[str, str] = {}
        self.snapshot: Snapshot | None = None

    def put(self, name: str, content: bytes) -> None:
        write_whole(self._folder / name, content)  # 0600 from the start

    def put_json(self, name: str, value: object) -> None:
        told = Secrets().value(msgspec.to_builtins(value))
        self.put(name, msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n")

    def stacks(self, known: KnownStacks | None) -> None:
        """Look once, with native frames where they can be had; the kernel's side beside it."""
        seen = take_snapshot(
            self._pids, stacks=True, within=self._within, native=lambda _: self._pids, known=known
        )
        self.snapshot = seen
        lines = map(hide_secrets, stacks_text(seen).split("\n"))
        self.put("stacks.txt", "\n".join(lines).encode())
        self.put_json("stacks.json", [process for process in seen.processes if process.python])
        if not seen.stacks:
            self.missing["stacks"] = seen.why_no_stacks
        for process in seen.processes:
            unread = all(thread.frames is None for thread in process.threads)
            if seen.stacks and process.python and unread:
                self.missing[f"stacks of {process.pid}"] = "py-spy gave none"
        self.put_json("processes.json", {"snapshot": seen, "in_kernel": in_kernel(seen)})

    def waits(self, found: WaitSet) -> None:
        text = "\n".join(sentences(found)) + "\n"
        self.put("wait-set.txt", text.encode())
        self.put_json("waits.json", waiters_of(found))

    def kernel(self, since: float) -> None:
        log = read_kernel_log(since, within=self._within)
        if log.why_not:
            self.missing["kernel.txt"] = log.why_not
        else:
            head = f"# from {log.source}, since {since:.0f} s after boot\n"
            self.put("kernel.txt", (head + "\n".join(log.lines) + "\n").encode())

    def gpu(self) -> None:
        counters = read_gpu_counters(within=self._within)
        if counters:
            self.put_json("gpu.json", counters)
        else:
            self.missing["gpu.json"] = "there is no AMD GPU to ask"
        for gpu in counters:
            if gpu.why_not:
                self.missing[gpu.card] = gpu.why_not

    def pages(self, folder: Path | None) -> None:
        if folder is None:
            self.missing["pages.json"] = "no folder for pages"
            return
        self.put_json("pages.json", {"heartbeats": read_pages(folder), "notes": read_notes(folder)})

    def log_tail(self, log: Path | None) -> None:
        if log is None:
            self.missing["log-tail.txt"] = "no log was kept"
            return
        tail = read_tail(log, LOG_TAIL + 1, follow=False)
        if len(tail) > LOG_TAIL:  # begin with a whole line
            tail = tail.partition(b"\n")[2] or tail
        self.put("log-tail.txt", tail)


def stacks_text(seen: Snapshot) -> str:
    """Write stacks for a person, innermost first."""
    lines = [] if seen.stacks else [f"No stacks: {seen.why_no_stacks}.", ""]
    for process in seen.processes:
        lines.append(f"process {process.pid} {process.name} (child of {process.parent})")
        for thread in process.threads:
            lines += _thread_text(process.pid, thread)
        lines.append("")
    return "\n".join(lines)


def _thread_text(pid: int, thread: ThreadSeen) -> list[str]:
    pids = thread.blocked.pids if thread.blocked and thread.wait in BETWEEN_PROCESSES else ()
    others = [other for other in pids if other != pid] or pids  # after a fork it holds both ends
    waits_for = f" {list(others)}" if others else ""
    head = (
        f"  thread {thread.tid} {thread.name}: state {thread.state}, {thread.cpu:.2f} s of cpu,"
        f" waits for {thread.wait.value}{waits_for}"
    )
    native = [f"      [native] {function}" for function in thread.native or ()]
    return [head, *native, *(f"      {frame}" for frame in thread.frames or ())]


def in_kernel(seen: Snapshot) -> tuple[InKernel, ...]:
    """Read the kernel's side of each thread: its call, its function, and as root its stack."""
    if os.name == "nt":
        return ()
    threads = [
        (process.pid, thread.tid) for process in seen.processes for thread in process.threads
    ]
    return tuple(
        InKernel(
            pid=pid,
            tid=tid,
            syscall=_read(pid, tid, "syscall"),
            function=_read(pid, tid, "wchan"),
            stack=tuple(_read(pid, tid, "stack").splitlines()),
        )
        for pid, tid in threads[:MAX_THREADS]
    )


def _read(pid: int, tid: int, name: str) -> str:
    try:
        return procfs.text(f"{procfs.PROC}/{pid}/task/{tid}/{name}").strip()
    except OSError:
        return ""
