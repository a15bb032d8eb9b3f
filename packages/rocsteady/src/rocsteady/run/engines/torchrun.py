"""The TorchElastic engine: an attempt is a generation of ranks that somebody's torchrun starts.

rocsteady's rendezvous (``integrations/torchrun.py``) is at the other end of a socket, in torchrun's
agent. It says that a generation is about to start and waits for its variables; it starts a new one
when it is asked to; it says that torchrun is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rocsteady.errors import LauncherError, NotNeededError, RocsteadyError
from rocsteady.run.engines.plain_command import AttemptProcesses
from rocsteady.run.hosts.blamed_nodes import BlamedNodes
from rocsteady.run.hosts.messages import AgentMessage, HostProposal
from rocsteady.system import keeper, procfs
from rocsteady.system.bounded_output import OutputBuffer
from rocsteady.system.child import Start
from rocsteady.system.child_end import (
    Exit,
    Interrupt,
    Interrupts,
    StopOutcome,
    Stopping,
    StopResult,
    exit_as,
    exit_of_zombie,
)
from rocsteady.system.keeper import Family
from rocsteady.system.terminal_handover import taken
from rocsteady.typed_values import decode

POLL_EVERY = 5.0  # seconds
SEND_WITHIN = 3.0  # seconds


class AgentLink:
    """The agent's end of the conversation, as the watcher sees it."""

    def __init__(
        self, descriptor: int, environment: Mapping[str, str], *, several_hosts: bool = False
    ) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.settimeout(0)
        self._environment = dict(environment)  # the agent's, with which this process was started
        self._heard = b""
        self.pid = os.getppid()  # the agent
        self.several_hosts = several_hosts  # have ranks of its job
        self.is_gone = False
        self.messages: list[AgentMessage] = []  # that nobody has taken yet
        self._is_agreed = False  # the hosts have decided what the next generation runs with
        self.blamed_nodes = BlamedNodes(environment)  # of all generations

    def fileno(self) -> int:
        """Return what to wait for."""
        return self._socket.fileno()

    def listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                while received := self._socket.recv(65536):
                    self._heard += received
                self.is_gone = True
            except ConnectionError:
                self.is_gone = True
        *lines, self._heard = self._heard.split(b"\n")
        self.messages += [decode(line, type=AgentMessage) for line in lines]

    def tell(self, **message: object) -> None:
        self._socket.settimeout(SEND_WITHIN)
        with contextlib.suppress(OSError):
            text = json.dumps(message, default=msgspec.to_builtins)  # names may not be UTF-8
            self._socket.sendall(text.encode() + b"\n")
        self._socket.settimeout(0)

    def agree(
        self,
        mine: HostProposal,
        choose: Callable[[HostProposal, Sequence[msgspec.Raw]], HostProposal],
    ) -> msgspec.Raw | None:
        """Propose what all hosts do before the next generation; return what was decided.

        None if there is no next generation. ``choose`` is asked where this host leads.
        """
        while (message := self._next()) is not None:
            if message.generation:  # also once more, if the hosts did not all arrive
                mine = msgspec.structs.replace(mine, host=message.host)
                self.tell(proposal=mine)
            elif message.proposals is not None:
                self.tell(decision=choose(mine, message.proposals))
            elif message.decision:
                self._is_agreed = True
                return message.decision
        return None

    def start(self, start: Start) -> AttemptProcesses:
        """Wait for a generation, and have it started with the variables of a start."""
        while not self._is_agreed:
            message = self._next()
            if message is None:
                raise LauncherError("torchrun has ended and will not restart its ranks")
            if message.generation:
                break
        self._is_agreed = False
        before, environment = self._environment, start.environment
        changed = {name: value for name, value in environment.items() if before.get(name) != value}
        unset = dict.fromkeys(name for name in before if name not in environment)
        self.tell(set={**changed, **unset})
        return RankGroup(self, start.run_id)

    def _next(self) -> AgentMessage | None:
        """Wait for a message, and take it; None if torchrun is over, or gone."""
        while not self.messages:
            if self.is_gone:
                return None
            select.select([self], [], [], POLL_EVERY)
            self.listen()
        if self.messages[0].over is not None:
            if self.messages[0].spare:
                raise NotNeededError("the job is done; this host was not needed")
            return None
        return self.messages.pop(0)

    def end(self, code: int) -> None:
        """Announce how the run ended; torchrun exits with that code."""
        self.tell(end=code)
        self._socket.close()


# A generation of ranks below torchrun's agent, which starts and reaps them.
#
# This side only observes them, and ends those that the agent cannot.

STOP_WITHIN = 5.0  # seconds, where torchrun itself would wait for 30
ASKED_WITHIN = 30.0  # seconds for the agent to take up that it must restart
RANKS_POLL_EVERY = 0.1  # seconds
READER_WAIT = 0.5  # seconds
SIGTERM, BY_SIGNAL = 15, 128  # as a script ends by it that handles it as a shell does


class RankGroup(AttemptProcesses):
    """One generation of ranks: what ``Child`` is to a command that we started ourselves."""

    mid_line = False

    def __init__(self, link: AgentLink, run_id: str) -> None:
        self.pid = link.pid
        self.interrupts = Interrupts()
        self._link = link
        self._family = Family(link.pid, run_id)
        self._mark = f"\0{keeper.RUN}={run_id}\0".encode()
        self._output_buffer = OutputBuffer(sys.stderr.fileno())
        self._ranks: dict[int, int] = {}  # a pidfd of each, by pid
        self._numbers: dict[int, int | None] = {}  # the rank of each
        self._ended: list[Exit] = []  # ranks that failed, as they were seen to
        self._unread: list[int | None] = []  # ranks that ended, and nobody could read how
        self._failed_at = 0.0
        self._replaced = False  # the agent ends the ranks because other hosts restart
        self._exit: Exit | None = None

    def wait(self, timeout: float | None = None) -> Exit | None:
        deadline = time.monotonic() + (timeout or 0.0)
        while self._exit is None:
            self._look(max(0.0, min(RANKS_POLL_EVERY, deadline - time.monotonic())))
            if time.monotonic() >= deadline:
                break
        return self._exit

    def members(self) -> dict[int, keeper.ProcessSnapshot]:
        """Return the ranks and all that they start; not what watches them."""
        everyone = keeper.all_processes()
        ours = keeper.descendants(os.getpid(), everyone)
        return {pid: seen for pid, seen in self._family.among(everyone).items() if pid not in ours}

    def tree(self) -> tuple[int, ...]:
        return tuple(self.members())

    def stop(
        self,
        stopping: Stopping,
        first: signal.Signals | None = signal.SIGTERM,
    ) -> StopResult:
        """Have the agent begin a new generation; kill what does not react to its SIGTERM.

        What hangs is killed as soon as the agent knows that it must not count as a failure.
        """
        self._link.tell(restart=True)
        how, deadline, asked = StopOutcome.TERMINATED, time.monotonic() + ASKED_WITHIN, False
        while self.members():
            self._link.listen()
            if not asked and any(message.stopping for message in self._link.messages):
                deadline, asked = time.monotonic() + STOP_WITHIN, True
            at_once = asked and first == signal.SIGKILL
            if at_once or time.monotonic() >= deadline or self._link.is_gone:
                how = StopOutcome.KILLED
                break
            time.sleep(RANKS_POLL_EVERY)
        left = keeper.kill_all(self, stopping.kill_wait.total_seconds())
        how = StopOutcome.UNKILLABLE if left else how
        self._exit = self._exit or Exit(signal=signal.SIGKILL)
        return StopResult(exit=self._exit, unkillable=left, how=how)

    def close(self) -> None:
        """Release the ranks; the agent ends them."""
        for descriptor in self._ranks.values():
            os.close(descriptor)
        self._ranks.clear()
        self._output_buffer.close(READER_WAIT)

    def tell(self, line: str) -> None:
        """Show one line of our own on stderr, without ever waiting for it."""
        self._output_buffer.put(f"{line}\n".encode(errors="replace"))

    def pause(self) -> None:
        """Refuse: ranks of other hosts would not be paused."""
        raise RocsteadyError("ranks of torchrun cannot be paused")

    def _look(self, within: float) -> None:
        """Wait for news: a message, or the end of a rank."""
        self._find_ranks()
        waits = [self._link.fileno(), *self._ranks.values()]
        ready = select.select(waits, [], [], within)[0]
        self._link.listen()  # first: the agent says that it ends ranks before it does
        if not self._replaced and any(message.stopping for message in self._link.messages):
            self._replaced, self._failed_at = not self._ended, time.monotonic()
        self._ranks_ended([pid for pid, each in self._ranks.items() if each in ready])
        if self._ended or self._replaced:
            self._hurry()
        self._exit = self._outcome()

    def _outcome(self) -> Exit | None:
        """Return how the generation ended, if it did."""
        failed = self._as_reaped() or first_failure(self._ended, self._unread)
        is_gone = self._link.is_gone and not _runs(self._link.pid)
        if is_gone:
            keeper.kill_all(self, STOP_WITHIN)  # what the agent left
        for message in self._link.messages:
            if message.over is not None:
                if message.stopped:
                    self.interrupts.add(Interrupt(at=time.monotonic()))
                if not message.spare:
                    return Exit(code=0) if message.over else _as_torchrun_saw(message) or failed
            if message.generation or message.spare:
                return Exit(replaced=True) if self._replaced else failed
        return failed if is_gone else None

    def _as_reaped(self) -> Exit | None:
        """Return the first failure as torchrun told it, where it was faster than we were."""
        told = (message.reaped for message in self._link.messages if message.reaped)
        reaped = next((each for each in told if each.pid in self._numbers), None)
        if reaped is None or not self._unread:
            return None
        return exit_as(reaped.code, self._numbers[reaped.pid])

    def _find_ranks(self) -> None:
        """Hold on to the agent's children of this generation; another may be a dead watcher."""
        for pid in _children(self._link.pid) - {*self._ranks, os.getpid()}:
            with contextlib.suppress(OSError):
                environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
                if self._mark in environment:
                    self._ranks[pid] = os.pidfd_open(pid)
                    number = environment.partition(b"\0RANK=")[2].partition(b"\0")[0]
                    self._numbers[pid] = int(number) if number.isdigit() else None

    def _ranks_ended(self, pids: list[int]) -> None:
        """Take down how ranks failed. One that nobody could read any more may have failed first."""
        for pid in pids:
            os.close(self._ranks.pop(pid))
            number = self._numbers.get(pid)
            how = exit_of_zombie(pid, number)
            if how is None:
                self._unread.append(number)
            elif how.code != 0 and not self._replaced:
                self._ended.append(how)
                self._failed_at = self._failed_at or time.monotonic()

    def _hurry(self) -> None:
        """End ranks that do not react to the agent's SIGTERM: those that cannot save anything."""
        if time.monotonic() - self._failed_at < STOP_WITHIN:
            return
        members = self.members()
        saving = taken(members, signal.SIGTERM)
        deaf = {
            pid: seen
            for pid, seen in members.items()
            if seen.state == "T" or saving.get(pid) != "caught"
        }
        keeper.send(deaf, signal.SIGKILL)


def first_failure(ended: list[Exit], unread: list[int | None]) -> Exit:
    """Return how the first rank failed: those that torchrun terminated after it say nothing.

    If they all were terminated and torchrun had reaped a single one before it was read, that one
    failed.
    """
    own = [each for each in ended if SIGTERM not in (each.signal, (each.code or 0) - BY_SIGNAL)]
    by_itself = own or ([] if unread else ended)
    if by_itself:
        return by_itself[0]
    return Exit(code=1, rank=unread[0] if len(unread) == 1 else None)  # as torchrun has it


def _as_torchrun_saw(message: AgentMessage) -> Exit | None:
    """Return the first failure as torchrun tells it at its end; it has reaped the rank."""
    failed = message.failed
    return exit_as(failed.code, failed.rank) if failed and failed.code else None


def _runs(pid: int) -> bool:
    seen = keeper.process_snapshot(pid)
    return seen is not None and keeper.is_alive(pid, seen)


def _children(pid: int) -> set[int]:
    try:
        return procfs.children(pid)
    except OSError:
        return set()
