"""System calls by what a thread that is blocked in one waits for, by processor.

Only calls that can block for long are named. The numbers are the kernel's own and never change.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeVar


class Call(Enum):
    """What a blocked call waits for, and so where its arguments say more."""

    FUTEX = "futex"  # op in the second argument, timeout in the fourth
    FUTEX_NEW = "futex_wait"  # the newer calls, whose arguments differ
    SEMAPHORE = "semaphore"  # System V
    SLEEP = "sleep"
    READ = "read"  # a descriptor in the first argument
    WRITE = "write"
    POLL = "poll"  # an array of descriptors
    SELECT = "select"  # three bit sets of descriptors
    EPOLL = "epoll"  # a descriptor whose fdinfo lists others
    WAIT_FOR = "wait4"  # a pid in the first argument
    WAIT_ID = "waitid"  # kind and id
    DEVICE = "ioctl"  # a descriptor in the first argument
    PAUSE = "pause"  # any signal that is handled
    FILE_LOCK = "flock"  # a descriptor in the first argument; also fcntl
    OUTSIDE = "outside"  # a file, a connection being made, a signal
    RESTARTED = "restart"  # whatever it was before a signal; only the kernel function tells


X86_64: Mapping[int, Call] = {
    202: Call.FUTEX, 449: Call.FUTEX_NEW, 455: Call.FUTEX_NEW,
    65: Call.SEMAPHORE, 220: Call.SEMAPHORE,
    35: Call.SLEEP, 230: Call.SLEEP,
    0: Call.READ, 17: Call.READ, 19: Call.READ, 43: Call.READ, 45: Call.READ, 47: Call.READ,
    288: Call.READ, 295: Call.READ, 299: Call.READ, 327: Call.READ,
    1: Call.WRITE, 18: Call.WRITE, 20: Call.WRITE, 44: Call.WRITE, 46: Call.WRITE,
    296: Call.WRITE, 307: Call.WRITE, 328: Call.WRITE,
    7: Call.POLL, 271: Call.POLL,
    23: Call.SELECT, 270: Call.SELECT,
    232: Call.EPOLL, 281: Call.EPOLL, 441: Call.EPOLL,
    61: Call.WAIT_FOR,
    247: Call.WAIT_ID,
    16: Call.DEVICE,
    2: Call.OUTSIDE, 34: Call.PAUSE, 40: Call.OUTSIDE, 42: Call.OUTSIDE, 69: Call.OUTSIDE,
    70: Call.OUTSIDE, 72: Call.FILE_LOCK, 73: Call.FILE_LOCK, 74: Call.OUTSIDE, 75: Call.OUTSIDE,
    128: Call.OUTSIDE, 130: Call.OUTSIDE, 208: Call.OUTSIDE, 242: Call.OUTSIDE,
    243: Call.OUTSIDE, 257: Call.OUTSIDE, 275: Call.OUTSIDE, 426: Call.OUTSIDE,
    437: Call.OUTSIDE,
    219: Call.RESTARTED,
}  # fmt: skip

AARCH64: Mapping[int, Call] = {
    98: Call.FUTEX, 449: Call.FUTEX_NEW, 455: Call.FUTEX_NEW,
    192: Call.SEMAPHORE, 193: Call.SEMAPHORE,
    101: Call.SLEEP, 115: Call.SLEEP,
    63: Call.READ, 65: Call.READ, 67: Call.READ, 69: Call.READ, 202: Call.READ, 207: Call.READ,
    212: Call.READ, 242: Call.READ, 243: Call.READ, 286: Call.READ,
    64: Call.WRITE, 66: Call.WRITE, 68: Call.WRITE, 70: Call.WRITE, 206: Call.WRITE,
    211: Call.WRITE, 269: Call.WRITE, 287: Call.WRITE,
    73: Call.POLL,
    72: Call.SELECT,
    22: Call.EPOLL, 441: Call.EPOLL,
    260: Call.WAIT_FOR,
    95: Call.WAIT_ID,
    29: Call.DEVICE,
    4: Call.OUTSIDE, 25: Call.FILE_LOCK, 32: Call.FILE_LOCK, 56: Call.OUTSIDE, 71: Call.OUTSIDE,
    76: Call.OUTSIDE, 82: Call.OUTSIDE, 83: Call.OUTSIDE, 133: Call.OUTSIDE,
    137: Call.OUTSIDE, 182: Call.OUTSIDE, 183: Call.OUTSIDE, 188: Call.OUTSIDE,
    189: Call.OUTSIDE, 203: Call.OUTSIDE, 426: Call.OUTSIDE, 437: Call.OUTSIDE,
    128: Call.RESTARTED,
}  # fmt: skip


class Clock(Enum):
    """How a call is given the time after which it gives up."""

    MILLISECONDS = "ms"  # below 0: never
    TIMESPEC = "timespec"  # the address of a duration; 0: never
    TIMEVAL = "timeval"


# Which argument of a call that waits for descriptors has its timeout. A futex has rules of its own.
TIMEOUTS_X86_64: Mapping[int, tuple[int, Clock]] = {
    7: (2, Clock.MILLISECONDS), 271: (2, Clock.TIMESPEC),
    23: (4, Clock.TIMEVAL), 270: (4, Clock.TIMESPEC),
    232: (3, Clock.MILLISECONDS), 281: (3, Clock.MILLISECONDS), 441: (3, Clock.TIMESPEC),
    299: (4, Clock.TIMESPEC),
}  # fmt: skip
TIMEOUTS_AARCH64: Mapping[int, tuple[int, Clock]] = {
    73: (2, Clock.TIMESPEC),
    72: (4, Clock.TIMESPEC),
    22: (3, Clock.MILLISECONDS), 441: (3, Clock.TIMESPEC),
    243: (4, Clock.TIMESPEC),
}  # fmt: skip

# Calls that go on after a stop as if nothing had been, by what signal(7) and the kernel's sources
# say. On descriptors, that holds for reads at pipes, and at sockets without a timeout of their own.
# All others may fail with EINTR, though no signal was sent: epoll_wait, semop, sigtimedwait,
# io_uring_enter, io_getevents, futex_waitv, msgrcv of old kernels, and what nobody has looked up.
# A write of which a part is done ends early, with a short count; so does a read that waits for all.
RESTARTING = frozenset({
    Call.FUTEX, Call.SLEEP, Call.READ, Call.POLL, Call.SELECT, Call.WAIT_FOR,
    Call.WAIT_ID, Call.DEVICE, Call.PAUSE, Call.RESTARTED,
})  # fmt: skip
WAIT_ALL = 0x100  # MSG_WAITALL
FLAGS_X86_64: Mapping[int, int] = {45: 4, 47: 3, 299: 0}  # the argument of a read that has flags
FLAGS_AARCH64: Mapping[int, int] = {207: 4, 212: 3, 243: 0}  # 0: recvmmsg, which may have a part


# The kernel's function that a thread sleeps in, by how its name begins: the second source, where
# the system call itself may not be read, or was restarted.
FUNCTIONS: tuple[tuple[str, Call], ...] = (
    ("futex", Call.FUTEX),
    ("do_semtimedop", Call.SEMAPHORE),
    ("hrtimer_nanosleep", Call.SLEEP),
    ("do_nanosleep", Call.SLEEP),
    ("do_wait", Call.WAIT_FOR),
    ("kfd_wait", Call.DEVICE),
    ("amdgpu", Call.DEVICE),
    ("drm_", Call.DEVICE),
    ("dma_fence", Call.DEVICE),
    ("poll_schedule", Call.POLL),
    ("do_sys_poll", Call.POLL),
    ("do_poll", Call.POLL),
    ("wait_for_partner", Call.OUTSIDE),
    ("n_tty_read", Call.OUTSIDE),
    ("nfs", Call.OUTSIDE),
    ("inet_csk_accept", Call.OUTSIDE),
)


T = TypeVar("T")


def _of_this_machine(x86_64: Mapping[int, T], aarch64: Mapping[int, T]) -> Mapping[int, T]:
    """Choose a table; none for a processor that is not known."""
    return {"x86_64": x86_64, "aarch64": aarch64, "arm64": aarch64}.get(platform.machine(), {})


CALLS = _of_this_machine(X86_64, AARCH64)
TIMEOUTS = _of_this_machine(TIMEOUTS_X86_64, TIMEOUTS_AARCH64)
FLAGS = _of_this_machine(FLAGS_X86_64, FLAGS_AARCH64)


def may_have_part(words: Sequence[str]) -> bool:
    """Whether a blocked read, given as the words of /proc/PID/syscall, may have a part already."""
    place = FLAGS.get(int(words[0]))
    return place is not None and (place == 0 or bool(int(words[place], 16) & WAIT_ALL))


def by_function(name: str) -> Call | None:
    """Return the call that a thread is in, by the kernel function that it sleeps in."""
    return next((call for start, call in FUNCTIONS if name.startswith(start)), None)
