"""The words for a child that is started and ended: how long to wait, and what came of it."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

from rocsteady.model import Value

NOTHING = timedelta(0)


class Stopping(Value, frozen=True, kw_only=True):
    """How long each way to end a child is given before the next, harder one."""

    interrupt_wait: timedelta = timedelta(seconds=5)
    terminate_wait: timedelta = timedelta(seconds=5)
    save_wait: timedelta = timedelta(seconds=30)  # in its place for who catches SIGTERM, to save
    kill_wait: timedelta = timedelta(seconds=3)  # what is alive after it is abandoned

    def __post_init__(self) -> None:
        if self.interrupt_wait < NOTHING or self.terminate_wait < NOTHING:
            raise ValueError("a wait cannot be negative")
        if self.kill_wait <= NOTHING:
            raise ValueError("kill_wait must be positive: the kernel needs time to end a process")
        if NOTHING < self.terminate_wait < self.kill_wait:
            raise ValueError("terminate_wait must not be shorter than kill_wait")


class Exit(Value, frozen=True, kw_only=True):
    """How the command itself ended; both are None if nobody can know any more."""

    code: int | None = None
    signal: int | None = None
    replaced: bool = False  # nothing failed here: other hosts restarted the job


class How(Enum):
    """What it took to end a child, mildest first."""

    BY_ITSELF = "by itself"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    KILLED = "killed"
    UNKILLABLE = "cannot be killed"


class StopResult(Value, frozen=True, kw_only=True):
    """What came of stopping a child and everything that it started."""

    exit: Exit | None  # None: the command itself is among the unkillable
    unkillable: tuple[int, ...] = ()
    seconds: float
    how: How


class TerminalUse(Value, frozen=True, kw_only=True):
    """Which of our descriptors the child's streams are carried from and to.

    Without one, the child reads from nothing, and what it writes goes to the log only.
    """

    stdin: int | None = 0
    stdout: int | None = 1
    stderr: int | None = 2


OURS = TerminalUse()
DETACHED = TerminalUse(stdin=None, stdout=None, stderr=None)
