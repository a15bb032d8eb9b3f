"""Make the page of this process, and the other ways by which the supervisor may look in."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import time
from typing import Any

from .. import wire

FOLDER = os.environ.get(wire.PAGES, "")
EXCLUSIVE = os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
PR_SET_PTRACER = 0x59616D61
YAMA = "/proc/sys/kernel/yama/ptrace_scope"
STDERR = 2


def note(what: str, error: object) -> None:
    """Leave a line for the supervisor. There is nobody else to tell, so it fails silently."""
    line = f"{what}: {type(error).__name__}: {error}" if isinstance(error, Exception) else what
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    with contextlib.suppress(Exception):
        descriptor = os.open(_name(wire.NOTE_SUFFIX), flags, 0o600)
        try:
            os.write(descriptor, " ".join(line.split()).encode("utf-8", "replace")[:2000] + b"\n")
        finally:
            os.close(descriptor)


def leave(suffix: str, content: bytes) -> None:
    """Leave a file for the supervisor, whole or not at all; it takes the place of an older one."""
    whole = _name(suffix)
    part = whole + ".part"
    descriptor = _new_file(part, os.O_WRONLY)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
    os.replace(part, whole)


def make() -> memoryview:
    """Make PID.page and map it as words."""
    descriptor = _new_file(_name(wire.SUFFIX), os.O_RDWR)
    try:
        os.ftruncate(descriptor, wire.SIZE)
        if hasattr(os, "posix_fallocate"):  # where there is no room, a write to a map kills
            os.posix_fallocate(descriptor, 0, wire.SIZE)
        kept_open: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        words = memoryview(mmap.mmap(descriptor, wire.SIZE, **kept_open)).cast("Q")
    finally:
        os.close(descriptor)
    now = time.monotonic_ns()
    words[wire.W_PID] = os.getpid()
    words[wire.W_MADE] = now
    words[wire.W_SINCE] = now
    words[wire.W_VERSION] = wire.VERSION
    identify(words)
    words[wire.W_MAGIC] = wire.MAGIC  # last: a page without it is not yet one
    return words


def remove() -> None:
    """Take the page away, so that nobody takes its silence for a hang."""
    with contextlib.suppress(OSError):
        os.unlink(_name(wire.SUFFIX))


def identify(words: memoryview) -> None:
    """Write which rank this is: what torch.distributed says, else what the launcher told it."""
    ranks = {
        wire.W_RANK: os.environ.get("RANK", ""),
        wire.W_WORLD: os.environ.get("WORLD_SIZE", ""),
        wire.W_LOCAL_RANK: os.environ.get("LOCAL_RANK", ""),
    }
    distributed: Any = sys.modules.get("torch.distributed")
    with contextlib.suppress(Exception):  # not built in, or not yet wholly imported
        if distributed is not None and distributed.is_initialized():
            ranks[wire.W_RANK] = str(distributed.get_rank())
            ranks[wire.W_WORLD] = str(distributed.get_world_size())
    for word, text in ranks.items():
        if text.isdecimal():
            words[word] = min(int(text), 1 << 32) + (word != wire.W_WORLD)


def is_child() -> bool:
    """Return whether multiprocessing started this process: a loader worker, or a rank."""
    process: Any = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    unpickling = getattr(process.current_process(), "_inheriting", False)  # of spawn, forkserver
    return bool(unpickling) or process.parent_process() is not None


def is_loader_worker() -> bool:
    worker: Any = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and getattr(worker, "_worker_info", None) is not None


def let_supervisor_trace() -> None:
    """Allow the supervisor's py-spy, which is no ancestor of ours, where Yama would forbid it."""
    supervisor = os.environ.get(wire.SUPERVISOR, "")
    if supervisor.isdecimal() and os.path.exists(YAMA):
        try:
            import ctypes  # noqa: PLC0415 - not every Python has it; torch imports it right after

            arguments = [ctypes.c_ulong(value) for value in (int(supervisor), 0, 0, 0)]
            if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PTRACER, *arguments) != 0:
                note(f"prctl(PR_SET_PTRACER): {os.strerror(ctypes.get_errno())}", None)
        except Exception as error:  # stacks may then not be had from outside
            note("prctl(PR_SET_PTRACER)", error)


def show_crashes() -> None:
    """Have Python say on stderr which line it crashed in, unless the script has arranged for it."""
    try:
        import faulthandler  # noqa: PLC0415 - built in, but not into every Python

        if not faulthandler.is_enabled():
            faulthandler.enable(STDERR)
    except Exception as error:  # a crash is then as silent as without us
        note("faulthandler", error)


def _name(suffix: str) -> str:
    return os.path.join(FOLDER, str(os.getpid()) + suffix)


def _new_file(path: str, flags: int) -> int:
    """Open a file that nobody else can have made; what this process left before an exec goes."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, flags | EXCLUSIVE, 0o600)
