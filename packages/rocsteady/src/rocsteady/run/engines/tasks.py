"""The engine of one task for each rank: every task of the host starts its own when this one does.

The ranks are processes of this run, by its variable: they are watched and ended like those that
were started here. Their output goes where that of the first one goes.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
from rocsteady_train.inside import wire

from rocsteady.errors import LauncherError, RocsteadyError
from rocsteady.exit_codes import PERSON_NEEDED, RETRY
from rocsteady.hangs.heartbeat_pages import read_pages
from rocsteady.store.redaction import shown_command
from rocsteady.system import keeper
from rocsteady.system.child import Child, Start, start_as
from rocsteady.system.child_end import Exit, Stopping, StopResult
from rocsteady.system.tasks import (
    MEET_WITHIN,
    Conversation,
    Order,
    Report,
    Task,
    leave,
    listening,
)

POLL_EVERY = 0.05  # seconds
AFTER_FAILURE = Stopping(save_wait=timedelta(seconds=5))  # for ranks that have lost another
LAUNCHER_EVERY = 1.0  # seconds between looks whether it lives
MEET_AT_END = 10.0  # seconds for tasks that start late to hear that there is nothing to do


class HostTasks:
    """The other tasks of this host, as the first one sees them."""

    def __init__(self, task: Task, command: Sequence[str]) -> None:
        self.task = task
        self._code = PERSON_NEEDED  # that all tasks end with
        self._typed = tuple(command)
        self._socket = listening(task)
        if task.several_hosts:  # it may come when this run has just ended by itself
            signal.signal(signal.SIGTERM, lambda _number, _frame: None)
        self._others: dict[int, Conversation] = {}  # by rank
        self._commands: dict[int, tuple[str, ...]] = {}  # as typed for each
        self._exits: dict[int, Exit] = {}  # of the ranks of this attempt
        self._gone: set[int] = set()
        self._attempt = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, name="rocsteady-tasks", daemon=True).start()

    def start(self, start: Start) -> Child:
        """Start this task's rank, and have the others start theirs."""
        if not self._meet(MEET_WITHIN):
            missing = self.task.local_ranks - 1 - len(self._others)
            raise LauncherError(f"{missing} tasks of this host did not start")
        if self._gone:
            raise LauncherError("another task of this host has ended")
        commands = {rank: self._command(start.command, rank) for rank in self._others}
        self._exits.clear()
        self._attempt += 1
        changed: dict[str, str | None] = {
            name: text for name, text in start.environment.items() if os.environ.get(name) != text
        }
        changed |= dict.fromkeys(name for name in os.environ if name not in start.environment)
        changed[keeper.RUN] = start.run_id

        def start_others(streams: Sequence[int]) -> None:
            for rank, other in self._others.items():
                order = Order(
                    attempt=self._attempt,
                    command=commands[rank],
                    folder=os.fspath(start.folder),
                    variables=changed,
                )
                other.tell(order, streams[1:])

        ranks = start_as(HostRanks, replace(start, on_streams=start_others))
        ranks.tasks = self
        ranks.pages = Path(start.environment.get(wire.PAGES, ""))
        return ranks

    def ask_to_end(self) -> None:
        for other in self._others.values():
            other.tell(Order(stop=True))

    def outcome(self, own: Exit | None) -> Exit | None:
        """Return how the ranks of this host ended: as the first that failed, or all well."""
        with self._changed:
            exits, gone = dict(self._exits), set(self._gone)
        failed = [it for it in exits.values() if it.code != 0]
        if failed:
            return failed[0]
        if own is not None and own.code != 0:
            return msgspec.structs.replace(own, rank=self.task.rank)
        if lost := gone - exits.keys():
            return Exit(signal=9, rank=min(lost))
        return own if self.have_all_ended(own) else None

    def have_all_ended(self, own: Exit | None) -> bool:
        return own is not None and self._exits.keys() == self._others.keys()

    def has_ended_well(self, own: Exit | None) -> bool:
        """Whether one of the ranks has."""
        return any(each is not None and each.code == 0 for each in (own, *self._exits.values()))

    def end(self, code: int) -> int:
        """Return the code that all tasks of this host end with."""
        # srun gives the highest of all hosts, and those that it ends now end with RETRY.
        hides = self.task.several_hosts and 0 < code < RETRY
        self._code = PERSON_NEEDED if hides else code
        return self._code

    def close(self) -> None:
        """Have the other tasks end too, also those that start late."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Python's end would forget a handler
        self._meet(MEET_AT_END)
        for other in self._others.values():
            other.tell(Order(end=self._code))
        self._socket.close()
        leave(self.task)

    def _meet(self, within: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: len(self._others) == self.task.local_ranks - 1, within
            )

    def _command(self, command: Sequence[str], rank: int) -> tuple[str, ...]:
        """Return what a task is to run: its own words, and what a restart adds to them."""
        own, typed = self._commands[rank], self._typed
        if own == typed:
            return tuple(command)
        if len(own) != len(typed) or tuple(command[: len(typed)]) != typed:
            raise RocsteadyError(f"rank {rank} has another command: {shown_command(own)}")
        return (*own, *command[len(typed) :])

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError, ValueError):
            selector.register(self._socket, selectors.EVENT_READ)
            parent = os.getppid()
            while True:
                if parent != os.getppid():  # the launcher was killed, and nobody else ends us
                    parent = os.getppid()
                    os.kill(os.getpid(), signal.SIGTERM)
                for key, _ in selector.select(LAUNCHER_EVERY):
                    if key.data is None:
                        connection, _ = self._socket.accept()
                        selector.register(
                            connection, selectors.EVENT_READ, Conversation(connection)
                        )
                    elif not self._hear(key.data):
                        selector.unregister(key.fileobj)

    def _hear(self, other: Conversation) -> bool:
        """Take note of what a task says; False: it is gone."""
        reports = other.heard(Report)
        with self._changed:
            for report in reports or ():
                if report.exit is None:
                    self._others[report.rank] = other
                    self._commands[report.rank] = report.command
                elif report.attempt == self._attempt:
                    rank = report.rank
                    self._exits[rank] = msgspec.structs.replace(report.exit, rank=rank)
            if reports is None:
                self._gone |= {rank for rank, each in self._others.items() if each is other}
            self._changed.notify_all()
        return reports is not None


class HostRanks(Child):
    """The ranks of one attempt on this host: the first is a child of ours."""

    tasks: HostTasks
    pages: Path
    _ended: Exit | None = None
    _is_ending = False

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait until all ranks have ended, or one has failed; the others are ended then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._is_ending:
            return self._ended or super().wait(timeout)
        while (ended := self.tasks.outcome(self.poll())) is None or self._others_train_on(ended):
            left = POLL_EVERY if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(POLL_EVERY, left))
        self._ended = ended
        if ended.code != 0:
            self.stop(AFTER_FAILURE)
        return ended

    def _others_train_on(self, ended: Exit) -> bool:
        """Whether others are no ranks of one job with the one that ended: they go on then."""
        beats = read_pages(self.pages)
        before_steps = beats and not any(beat.step for beat in beats)
        if ended.code == 0 or before_steps or any((beat.world or 1) > 1 for beat in beats):
            return False
        if self.tasks.have_all_ended(own := self.poll()):
            if not self.tasks.has_ended_well(own):
                return False  # all failed, so they may well depend on each other
            raise RocsteadyError(
                f"the tasks trained on their own, and rank {ended.rank} failed. Independent"
                " trainings each need a folder and a step of their own"
            )
        return True

    def stop(self, stopping: Stopping, first: signal.Signals | None = signal.SIGTERM) -> StopResult:
        self._is_ending = True
        if first == signal.SIGTERM:
            self.tasks.ask_to_end()
        return super().stop(stopping, first)
