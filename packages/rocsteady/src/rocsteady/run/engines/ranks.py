"""A generation of ranks below torchrun's agent, which starts and reaps them.

This side only observes them, and ends those that the agent cannot.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rocsteady.errors import RocsteadyError
from rocsteady.system import keeper, procfs
from rocsteady.system.child_end import Exit, How, Stopping, StopResult
from rocsteady.system.interrupts import Interrupt, Interrupts
from rocsteady.system.keeper import Family
from rocsteady.system.output_buffer import Outlet
from rocsteady.system.terminal import taken

STOP_WITHIN = 5.0  # seconds, where torchrun itself would wait for 30
ASKED_WITHIN = 30.0  # seconds for the agent to take up that it must restart
LOOK = 0.1  # seconds
READER_WAIT = 0.5  # seconds


class Agent(Protocol):
    """The agent of torchrun, at the other end of a conversation."""

    pid: int
    is_gone: bool
    messages: list[dict[str, Any]]  # that nobody has taken yet

    def fileno(self) -> int:
        """Return what to wait for."""

    def listen(self) -> None:
        """Take in what was said."""

    def tell(self, **message: object) -> None:
        """Send one message."""


class RankFamily:
    """The ranks of an agent and all that they start; not what watches them."""

    cgroup = ""

    def __init__(self, agent: int, run_id: str) -> None:
        self._family = Family(agent, run_id)

    def members(self) -> dict[int, keeper.ProcessSnapshot]:
        """Look once."""
        everyone = keeper.all_processes()
        ours = keeper.descendants(os.getpid(), everyone)
        return {pid: seen for pid, seen in self._family.among(everyone).items() if pid not in ours}


class RankGroup:
    """One generation of ranks: what ``Child`` is to a command that we started ourselves."""

    mid_line = False

    def __init__(self, link: Agent, run_id: str) -> None:
        self.pid = link.pid
        self.interrupts = Interrupts()
        self._link = link
        self._family = RankFamily(link.pid, run_id)
        self._mark = f"\0{keeper.RUN}={run_id}\0".encode()
        self._outlet = Outlet(sys.stderr.fileno())
        self._ranks: dict[int, int] = {}  # a pidfd of each, by pid
        self._failed: Exit | None = None  # the first rank that did
        self._failed_at = 0.0
        self._replaced = False  # the agent ends the ranks because other hosts restart
        self._exit: Exit | None = None

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait for the end of the generation, at most so many seconds."""
        deadline = time.monotonic() + (timeout or 0.0)
        while self._exit is None:
            self._look(max(0.0, min(LOOK, deadline - time.monotonic())))
            if time.monotonic() >= deadline:
                break
        return self._exit

    def tree(self) -> tuple[int, ...]:
        """Give every living process of the ranks."""
        return tuple(self._family.members())

    def stop(
        self,
        stopping: Stopping,
        first: signal.Signals | None = signal.SIGINT,
        futile: Callable[[], bool] | None = None,
    ) -> StopResult:
        """Have the agent begin a new generation; kill what does not react to its SIGTERM."""
        del first
        began = time.monotonic()
        self._link.tell(restart=True)
        how, deadline, asked = How.TERMINATED, began + ASKED_WITHIN, False
        while self._family.members():
            self._link.listen()
            if not asked and any("stopping" in message for message in self._link.messages):
                deadline, asked = time.monotonic() + STOP_WITHIN, True
            nobody = asked and futile is not None and futile()
            if nobody or time.monotonic() >= deadline or self._link.is_gone:
                how = How.KILLED
                break
            time.sleep(LOOK)
        left = keeper.kill_all(self._family, stopping.kill_wait.total_seconds())
        how = How.UNKILLABLE if left else how
        self._exit = self._exit or Exit(signal=signal.SIGKILL)
        return StopResult(
            exit=self._exit, unkillable=left, seconds=time.monotonic() - began, how=how
        )

    def close(self) -> None:
        """Let go of the ranks; the agent ends them."""
        for descriptor in self._ranks.values():
            os.close(descriptor)
        self._ranks.clear()
        self._outlet.close(READER_WAIT)

    def tell(self, line: str) -> None:
        """Show one line of our own on stderr, without ever waiting for it."""
        self._outlet.put(f"{line}\n".encode(errors="replace"))

    def left_running(self) -> dict[int, str]:
        """Name nothing: the agent ends what ranks leave."""
        return {}

    def pass_on(self, number: signal.Signals) -> None:
        """Pass nothing on: the agent gets its signals itself."""

    def at_prompt(self) -> bool:
        """Tell that ranks are at no prompt."""
        return False

    def suspend(self) -> None:
        """Suspend nothing."""

    def detach_terminal(self) -> None:
        """Have no terminal."""

    def pause(self) -> None:
        """Refuse: ranks of other hosts would not be paused."""
        raise RocsteadyError("ranks of torchrun cannot be paused")

    def end_pause(self) -> None:
        """Continue nothing."""

    def is_stopped(self) -> bool:
        """Tell that nothing was paused."""
        return False

    def _look(self, within: float) -> None:
        """Wait for news: a message, or the end of a rank."""
        self._find_ranks()
        waits = [self._link.fileno(), *self._ranks.values()]
        ready = select.select(waits, [], [], within)[0]
        for pid, descriptor in [*self._ranks.items()]:
            if descriptor in ready:
                self._rank_ended(pid)
        self._link.listen()
        if not self._replaced and any("stopping" in message for message in self._link.messages):
            self._replaced, self._failed_at = self._failed is None, time.monotonic()
        if self._failed is not None or self._replaced:
            self._hurry()
        self._exit = self._outcome()

    def _outcome(self) -> Exit | None:
        """Tell how the generation ended, if it did."""
        failed = self._failed or Exit(code=1)  # as torchrun has it
        is_gone = self._link.is_gone and not _runs(self._link.pid)
        if is_gone:
            keeper.kill_all(self._family, STOP_WITHIN)  # what the agent left
        for message in self._link.messages:
            if "over" in message:
                if message.get("stopped"):
                    self.interrupts.add(Interrupt(at=time.monotonic()))
                return Exit(code=0) if message["over"] else failed
            if "generation" in message:
                return Exit(replaced=True) if self._replaced else failed
        return failed if is_gone else None

    def _find_ranks(self) -> None:
        """Hold on to the agent's children of this generation; another may be a dead watcher."""
        for pid in _children(self._link.pid) - {*self._ranks, os.getpid()}:
            with contextlib.suppress(OSError):
                if self._mark in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                    self._ranks[pid] = os.pidfd_open(pid)

    def _rank_ended(self, pid: int) -> None:
        how = _exit_of_zombie(pid)
        os.close(self._ranks.pop(pid))
        if how is not None and how.code != 0 and self._failed is None and not self._replaced:
            self._failed, self._failed_at = how, time.monotonic()

    def _hurry(self) -> None:
        """End ranks that do not react to the agent's SIGTERM: those that cannot save anything."""
        if time.monotonic() - self._failed_at < STOP_WITHIN:
            return
        members = self._family.members()
        saving = taken(members, signal.SIGTERM)
        deaf = {
            pid: seen
            for pid, seen in members.items()
            if seen.state == "T" or saving.get(pid) != "caught"
        }
        keeper.send(deaf, signal.SIGKILL)


def _runs(pid: int) -> bool:
    """Tell whether a process runs."""
    seen = keeper.process_snapshot(pid)
    return seen is not None and keeper.is_alive(pid, seen)


def _children(pid: int) -> set[int]:
    try:
        return procfs.children(pid)
    except OSError:
        return set()


def _exit_of_zombie(pid: int) -> Exit | None:
    """Read how a process ended that its parent has not reaped; None if that is too late."""
    try:
        code = os.waitstatus_to_exitcode(procfs.exit_status(pid))
    except (OSError, IndexError, ValueError):
        return None
    return Exit(code=code) if code >= 0 else Exit(signal=-code)
