"""Stacks of Python processes from outside, by py-spy in bounded children.

They are read without stopping the process. Native frames can only be had by stopping it for as long
as that takes, so they are a question of their own. It is never asked of a process that is stopped,
traced or stuck in the kernel, nor while a thread of it is in a call that a stop would make fail.
Local variables are never taken.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import sysconfig
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from rocsteady.hangs.proof import syscalls
from rocsteady.hangs.proof.holders import DEVICES, own_timeout
from rocsteady.hangs.proof.syscalls import Call
from rocsteady.hangs.values import ProcessSeen, ThreadSeen, Wait
from rocsteady.model import Value
from rocsteady.system import procfs
from rocsteady.system.bounded_call import Answer, AnswerKind, ask
from rocsteady.system.parallel import run_all

DUMP_LIMIT = 8 * 1024 * 1024  # bytes of one answer
DUMP_TRIES = 3  # without stopping it, a running process may be seen in mid-change
SHORTEST_SAMPLING = timedelta(milliseconds=50)
MAX_NATIVE = 40  # functions kept
UNSTOPPABLE = frozenset("TtDZX")  # states of a thread in which its process is not stopped by us

NOT_INSTALLED = "py-spy is not installed"
NOT_PERMITTED = "ptrace is not permitted"
NOT_NOW = "it is stopped, traced, stuck in the kernel, or in a call that a stop would interrupt"
TOO_LATE = "py-spy did not answer in time"

SAMPLES_A_SECOND, SAMPLING_EXTRA = 100, timedelta(seconds=5)
_SAMPLED = re.compile(r"(?m)^thread \((?P<tid>\d+)\)[^;\n]*;(?P<frames>.+) (?P<count>\d+)$")
_FRAME = re.compile(r"(.+) \((.+):(\d+)\)")
_INSTALLED = re.compile(r"/((?:site|dist)-packages/|python3\.\d+/(?!(?:site|dist)-packages/))")
ROOTS = (".git", "pyproject.toml", "setup.py", "setup.cfg")  # what the folder of a project has


Ran = tuple[int, int]  # how often a thread was put on a processor, and for how many nanoseconds


class ThreadStack(Value, frozen=True, kw_only=True):
    """The stack of one thread, innermost first."""

    tid: int
    name: str
    frames: tuple[str, ...]
    native: tuple[str, ...] | None = None


class Stacks(Value, frozen=True, kw_only=True):
    """The stacks that could be had, and of which processes not and why."""

    threads: dict[int, tuple[ThreadStack, ...]]
    missing: dict[int, str]


class _DumpedFrame(Value, frozen=True):
    name: str
    filename: str
    line: int
    module: str | None = None  # the library, of a native frame


class _PySpyThread(Value, frozen=True):
    frames: list[_DumpedFrame]
    thread_name: str | None = None
    os_thread_id: int | None = None


_DUMP = msgspec.json.Decoder(list[_PySpyThread])


def take_stacks(
    pids: Sequence[int],
    *,
    within: timedelta,
    native: bool = False,
    retrying: Collection[int] = (),
    py_spy: str | None = None,
) -> Stacks:
    """Take the stacks of all threads of all these processes before the deadline.

    Only for ``native`` frames is a process stopped; ``retrying`` are threads that repeat a call
    which a stop has interrupted.
    """
    program = py_spy or find_py_spy()
    if program is None:
        return Stacks(threads={}, missing=dict.fromkeys(pids, NOT_INSTALLED))
    deadline = time.monotonic() + within.total_seconds()
    outcomes = run_all(
        {
            pid: functools.partial(_dumped, program, pid, deadline, retrying if native else None)
            for pid in pids
        },
        within=within,
        at_once=2 * (os.cpu_count() or 1),
    )
    taken = {pid: found for pid, found in outcomes.results.items() if isinstance(found, tuple)}
    why = {pid: found for pid, found in outcomes.results.items() if isinstance(found, str)}
    return Stacks(threads=taken, missing=why | dict.fromkeys(outcomes.missing, TOO_LATE))


def sample_stacks(pid: int, tid: int, *, seconds: float) -> tuple[tuple[str, ...], ...]:
    """Return the frames that a thread was in, many times a second; of each look innermost first."""
    program, folders = find_py_spy(), own_folders(pid)
    if program is None:
        return ()
    how = ("--nonblocking", "--idle", "--threads", "--full-filenames", "--format", "raw")
    answer = ask(
        [program, "record", *how, "--rate", str(SAMPLES_A_SECOND), "--duration", f"{seconds:.0f}",
         "--output", "/dev/stdout", "--pid", str(pid)],
        within=timedelta(seconds=seconds) + SAMPLING_EXTRA, limit=DUMP_LIMIT,
    )  # fmt: skip
    found: list[tuple[str, ...]] = []
    for match in _SAMPLED.finditer(answer.text):
        if match["tid"] == str(tid):
            frames = (_FRAME.fullmatch(each) for each in match["frames"].split(";"))
            named = [f"{it[1]} ({short(it[2], folders)}:{it[3]})" for it in frames if it]
            found += [tuple(reversed(named))] * int(match["count"])
    return tuple(found)


def find_py_spy() -> str | None:
    """Find the program in our own environment first, then on the path."""
    name = "py-spy.exe" if os.name == "nt" else "py-spy"
    ours = Path(sysconfig.get_path("scripts")) / name
    return str(ours) if ours.is_file() else shutil.which(name)


def _dumped(
    program: str, pid: int, deadline: float, retrying: Collection[int] | None
) -> tuple[ThreadStack, ...] | str:
    """Return the stacks of one process, or why there are none; with ``retrying`` native frames."""
    native = retrying is not None
    if retrying is not None and not may_be_stopped(pid, retrying):
        return NOT_NOW
    command = [program, "dump", "--json", "--native" if native else "--nonblocking"]
    why = TOO_LATE
    for _ in range(1 if native else DUMP_TRIES):
        left = timedelta(seconds=max(0.0, deadline - time.monotonic()))
        if left < SHORTEST_SAMPLING or why == NOT_PERMITTED:
            break
        answer = ask([*command, "--pid", str(pid)], within=left, limit=DUMP_LIMIT, complaints=True)
        if native and answer.outcome is not AnswerKind.ANSWERED:
            _let_go(pid)
        found = _read(answer, own_folders(pid), native=native)
        if found is not None:
            return found
        why = _complaint(answer)
    return why


def _read(
    answer: Answer, folders: tuple[str, ...], *, native: bool
) -> tuple[ThreadStack, ...] | None:
    if answer.outcome is not AnswerKind.ANSWERED or answer.exit_code != 0:
        return None
    try:
        threads = _DUMP.decode(answer.text[answer.text.find("[") :])
    except msgspec.DecodeError:
        return None
    return tuple(_stack(thread, folders, native=native) for thread in threads)


def _stack(thread: _PySpyThread, folders: tuple[str, ...], *, native: bool) -> ThreadStack:
    innermost = next(
        (index for index, frame in enumerate(thread.frames) if not frame.module),
        len(thread.frames),
    )
    return ThreadStack(
        tid=thread.os_thread_id or 0,  # older Pythons do not tell it
        name=thread.thread_name or "",
        frames=tuple(
            f"{frame.name} ({short(frame.filename, folders)}:{frame.line})"
            for frame in thread.frames
            if not frame.module
        ),
        native=tuple(frame.name for frame in thread.frames[:innermost][:MAX_NATIVE])
        if native
        else None,
    )


def short(filename: str, folders: tuple[str, ...] = ()) -> str:
    """Keep of an installed file what is below its root, of the user's own the last two parts.

    A package that lies elsewhere, as one that was built in its source tree or is on PYTHONPATH, is
    as good as installed, if it is outside of the ``folders`` that are the user's.
    """
    path = filename.replace("\\", "/")
    installed = _INSTALLED.search(path)
    if installed:
        return path[installed.start(1) :]
    if path.startswith("/") and folders and not path.startswith(folders):
        root = _above_package(path)
        if root:
            return "site-packages/" + path[len(root) + 1 :]
    return "/".join(path.split("/")[-2:])


@functools.cache
def _above_package(path: str) -> str:
    """Return the folder that a package is in; "" if the file is in none."""
    packages = [each for each in Path(path).parents if (each / "__init__.py").exists()]
    return str(packages[-1].parent) if packages and packages[0] == Path(path).parent else ""


@functools.lru_cache(maxsize=1000)
def own_folders(pid: int) -> tuple[str, ...]:
    """Return the folders whose code is the user's: the project that a process was started in."""
    try:
        here = Path(procfs.link(f"{procfs.PROC}/{pid}/cwd"))
    except OSError:
        return ()
    scripts = [here / word for word in procfs.command(pid) if word.endswith(".py")]
    return tuple(f"{_project(folder)}/" for folder in {here, *(each.parent for each in scripts)})


def _project(folder: Path) -> Path:
    """Return the nearest folder above that is a project; the folder itself if there is none."""
    folder = folder.resolve()
    above = (each for each in (folder, *folder.parents) if any((each / n).exists() for n in ROOTS))
    return next(above, folder)


def _complaint(answer: Answer) -> str:
    """Return in one line why py-spy gave no stack."""
    if answer.outcome is AnswerKind.NOT_STARTED:
        return NOT_INSTALLED
    if answer.outcome is not AnswerKind.ANSWERED:
        return TOO_LATE
    text = answer.text.lower()
    if "permission denied" in text or "operation not permitted" in text or "eperm" in text:
        return NOT_PERMITTED
    first = next((line for line in answer.text.splitlines() if line.strip()), "")
    return f"py-spy: {first.removeprefix('Error: ').strip()[:200] or 'no answer'}"


def may_be_stopped(pid: int, retrying: Collection[int] = ()) -> bool:
    """Whether a process would not notice that it was stopped for a moment."""
    try:
        return all(
            procfs.stat(pid, tid).state not in UNSTOPPABLE
            and (tid in retrying or _restarts(pid, tid))
            for tid in procfs.numbers(f"{procfs.PROC}/{pid}/task")
        )
    except (OSError, ValueError, IndexError):
        return False


def _restarts(pid: int, tid: int) -> bool:
    """Whether the call that a thread is in goes on as if nothing had been, after a stop."""
    words = procfs.text(f"{procfs.PROC}/{pid}/task/{tid}/syscall").split()
    if words[0] == "running":
        return True
    call = syscalls.CALLS.get(int(words[0]))
    if call not in (Call.READ, Call.DEVICE):
        return call in syscalls.RESTARTING
    descriptor = int(words[1], 16) & 0x7FFFFFFF
    kind = procfs.link(f"{procfs.PROC}/{pid}/task/{tid}/fd/{descriptor}")
    if call is Call.DEVICE:
        return kind.startswith(DEVICES)
    if kind.startswith("socket:"):
        has_part = syscalls.may_have_part(words)
        return not has_part and own_timeout(pid, descriptor, writing=False) is None
    return kind.startswith("pipe:")


def _let_go(pid: int) -> None:
    """Continue a process that a py-spy ended by us left stopped; it was not before."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        if procfs.stat(pid).state == "T":
            os.kill(pid, signal.SIGCONT)


# Stacks that need not be read again, because the thread has not run since.
#
# Those of 300 processes take four seconds of processor time, native ones with a library of torch's
# size one each, and a pause. A thread that waits and was not scheduled in between is where it was.


class _Read(Value, frozen=True, kw_only=True):
    """What was read of one thread, and by what it is known again."""

    when: Ran
    where: tuple[int, Wait, str, tuple[str, ...]]
    stack: ThreadStack | None  # None: it runs no Python


class KeptStacks:
    """The stacks of one process tree, as far as they still hold."""

    def __init__(self) -> None:
        self._read: dict[int, dict[int, _Read]] = {}  # by process and thread

    def still(self, process: ProcessSeen, threads: Iterable[ThreadSeen]) -> bool:
        """Return whether these threads of a process are where they were when they were read."""
        return all(self._holds(process.pid, thread) for thread in threads)

    def of(self, pids: Iterable[int]) -> Stacks:
        return Stacks(
            threads={
                pid: tuple(read.stack for read in self._read.get(pid, {}).values() if read.stack)
                for pid in pids
            },
            missing={},
        )

    def keep(
        self,
        processes: Iterable[ProcessSeen],
        taken: Stacks,
        when: Callable[[int, ThreadSeen], Ran],
    ) -> None:
        """Remember what was just read; ``when`` tells when a thread ran last before that."""
        for process in processes:
            found = {stack.tid: stack for stack in taken.threads.get(process.pid, ())}
            whole = found and 0 not in found  # older Pythons do not tell whose stack it is
            self._read[process.pid] = {
                thread.tid: _Read(
                    when=when(process.pid, thread),
                    where=_where(thread),
                    stack=found.get(thread.tid),
                )
                for thread in process.threads
                if whole and thread.wait is not Wait.NOTHING
            }

    def forget(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._read.pop(pid, None)

    def _holds(self, pid: int, thread: ThreadSeen) -> bool:
        read = self._read.get(pid, {}).get(thread.tid)
        return (
            read is not None
            and thread.switches > 0
            and read.when == (thread.switches, thread.ran)
            and read.where == _where(thread)
        )


class KnownStacks(NamedTuple):
    """What is kept between the snapshots of one process tree."""

    python: KeptStacks
    native: KeptStacks


def _where(thread: ThreadSeen) -> tuple[int, Wait, str, tuple[str, ...]]:
    on = thread.blocked.on if thread.blocked else ""
    return thread.start, thread.wait, on, tuple(thread.frames or ())
