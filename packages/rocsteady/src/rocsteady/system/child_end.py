"""The words for a child that is started and ended: how long to wait, and what came of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum

from rocsteady.model import Value
from rocsteady.system import procfs
from rocsteady.system.keeper import Family, kill_all, send
from rocsteady.system.terminal_handover import taken


class Stopping(Value, frozen=True, kw_only=True):
    terminate_wait: timedelta = timedelta(seconds=5)
    save_wait: timedelta = timedelta(seconds=30)  # in its place for who catches SIGTERM, to save
    kill_wait: timedelta = timedelta(seconds=3)  # what is alive after it is abandoned


class Exit(Value, frozen=True, kw_only=True):
    """How the command itself ended; both are None if nobody can know any more."""

    code: int | None = None
    signal: int | None = None
    rank: int | None = None  # of the one that failed first, where ranks were watched
    replaced: bool = False  # nothing failed here: other hosts restarted the job


def exit_as(code: int, rank: int | None = None) -> Exit:
    """Return the end that Python gives this code: below 0 is a signal."""
    return Exit(code=code, rank=rank) if code >= 0 else Exit(signal=-code, rank=rank)


def exit_of_zombie(pid: int, rank: int | None = None) -> Exit | None:
    """Read how a process ended that its parent has not reaped; None if that is too late."""
    try:
        return exit_as(os.waitstatus_to_exitcode(procfs.exit_status(pid)), rank)
    except (OSError, IndexError, ValueError):
        return None


class StopOutcome(Enum):
    BY_ITSELF = "by itself"
    TERMINATED = "terminated"
    KILLED = "killed"
    UNKILLABLE = "cannot be killed"


class StopResult(Value, frozen=True, kw_only=True):
    exit: Exit | None  # None: the command itself is among the unkillable
    unkillable: tuple[int, ...] = ()
    how: StopOutcome


class TerminalUse(Value, frozen=True, kw_only=True):
    """Which of our descriptors the child's streams are carried from and to.

    Without one, the child reads from nothing, and what it writes goes to the log only.
    """

    stdin: int | None = 0
    stdout: int | None = 1
    stderr: int | None = 2


INHERIT_TERMINAL = TerminalUse()
DETACHED = TerminalUse(stdin=None, stdout=None, stderr=None)


LEFTOVER_WAIT = timedelta(seconds=1)  # that others have to follow the command's own end
SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.1  # seconds between two looks at the tree
CLEANERS = (
    b"multiprocessing.resource_tracker",
    b"multiprocess.resource_tracker",
    b"torch_shm_manager",
)
EXIT_WAIT = 0.3  # seconds for the keeper to report a command that is gone


def end_child(
    family: Family,
    wait: Callable[[float], Exit | None],
    stopping: Stopping,
    first: signal.Signals | None,
    command: int = 0,
) -> StopResult:
    """End a command and everything that it started, from the ``first`` signal on.

    SIGKILL is for what hangs: a handler of any other signal could save half a model, and exit as if
    all were done. Only those that clean up after others, once they are gone, are given the time.

    A request to end goes to the command alone at first, as ``kill`` would send it: a script that
    saves then must not lose its loader's workers. Whoever is left when it has ended is asked too.
    """

    def ended(how: StopOutcome, unkillable: tuple[int, ...] = ()) -> StopResult:
        outcome = wait(0.0 if unkillable else EXIT_WAIT)
        return StopResult(exit=outcome, unkillable=unkillable, how=how)

    def ask_to_end(*, alone: bool = False) -> timedelta:
        asked = family.one(command) if alone else family.members()
        saves = "caught" in taken(asked, signal.SIGTERM).values()
        send(asked, signal.SIGTERM)
        return stopping.save_wait if saves else stopping.terminate_wait

    if wait(0.0) is not None and _is_empty(family):
        return ended(StopOutcome.BY_ITSELF)
    if first == signal.SIGTERM and _ends(family, wait, ask_to_end(alone=True)):
        return ended(StopOutcome.TERMINATED)
    if first == signal.SIGTERM and wait(0.0) is not None:
        patience = ask_to_end()
        if _ends(family, wait, patience, patience):
            return ended(StopOutcome.TERMINATED)
    if first == signal.SIGKILL:
        kill_but_cleaners(family)
        if _ends(family, wait, LEFTOVER_WAIT):
            return ended(StopOutcome.KILLED)
    left = kill_all(family, stopping.kill_wait.total_seconds())
    return ended(StopOutcome.UNKILLABLE if left else StopOutcome.KILLED, left)


def _ends(
    family: Family,
    wait: Callable[[float], Exit | None],
    within: timedelta,
    rest: timedelta = LEFTOVER_WAIT,
) -> bool:
    """Wait for the command, then a little for the ``rest``."""
    deadline = time.monotonic() + within.total_seconds()
    if wait(within.total_seconds()) is None:
        return False
    deadline = min(deadline, time.monotonic() + rest.total_seconds())
    pause = SHORTEST_PAUSE
    while not _is_empty(family):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return True


def kill_but_cleaners(family: Family) -> None:
    """Kill all at one moment, so that none sees another end; but those that clean up after them."""
    members = {pid: seen for pid, seen in family.members().items() if not _cleans_up(pid)}
    send(members, signal.SIGSTOP)
    send(members, signal.SIGKILL)


def _cleans_up(pid: int) -> bool:
    """Whether a process only removes shared memory that others have left, and then ends."""
    try:
        command = procfs.read(f"{procfs.PROC}/{pid}/cmdline")
    except OSError:
        return False
    return any(name in command for name in CLEANERS)


def _is_empty(family: Family) -> bool:
    return not family.members() and not family.members()  # one look may miss a child born in it


TWICE_WITHIN = 2.0  # seconds between two interrupts that together ask for the end
SETTLE = 1.0  # seconds for the script to act on the second one
ANSWER = 2.0  # seconds in which an end is the answer to an interrupt at a prompt


@dataclass(frozen=True, kw_only=True)
class Interrupt:
    at: float  # seconds of the monotonic clock
    prompt: bool = False  # somebody in the foreground was waiting for keys
    taken: Mapping[int, str] = field(default_factory=dict)  # how each process takes it, by pid


class Interrupts:
    """All of one attempt. Filled by one thread at a time, read by another."""

    def __init__(self) -> None:
        self._all: list[Interrupt] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, interrupt: Interrupt) -> None:
        self._all.append(interrupt)

    def stopped_it(self, ended: float, *, by_interrupt: bool) -> bool:
        """Whether an end at this moment is what the user wanted."""
        if not self._all:
            return False
        meant = any(not interrupt.prompt for interrupt in self._all)
        return meant or by_interrupt or ended - self._all[-1].at <= ANSWER

    def ask_for_the_end(self, now: float) -> bool:
        """Whether the last two do: the script ignored the first, and did not end since."""
        if len(self._all) < 2:  # noqa: PLR2004 - one is the script's alone
            return False
        first, second = self._all[-2:]
        soon = second.at - first.at <= TWICE_WITHIN and now - second.at >= SETTLE
        reacted = any(second.taken.get(pid, how) != how for pid, how in first.taken.items())
        return soon and not (first.prompt or second.prompt or reacted)

    def answered(self) -> None:
        """Take the last one as meant for whoever waits at a prompt now."""
        self._all[-1] = replace(self._all[-1], prompt=True)
