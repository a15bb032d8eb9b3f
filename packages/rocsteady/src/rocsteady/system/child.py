"""Linux and WSL2: a command below its keeper, its streams carried, its whole tree ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeAlias, TypeVar

from rocsteady.system import keeper
from rocsteady.system.child_end import (
    INHERIT_TERMINAL,
    Exit,
    Interrupt,
    Interrupts,
    Stopping,
    StopResult,
    TerminalUse,
    end_child,
    exit_as,
)
from rocsteady.system.launch import LaunchedCommand, launch
from rocsteady.system.leftovers import wait_for
from rocsteady.system.logfile import NO_RULES, LogFile, LogRules
from rocsteady.system.streams import Pump, PumpCallbacks, Wiring, wire
from rocsteady.system.terminal_handover import (
    in_group,
    is_orphaned,
    stop_ourselves,
    taken,
    waits_for_keys,
)

KEEPER_WAIT = keeper.TERMINATE_WAIT + keeper.KILL_WAIT + 1.0  # seconds
READER_WAIT = 1.0  # seconds without a byte taken, after which a reader of ours is given up
LOOK_EVERY = 0.05  # seconds between looks at a command whose keeper is gone
LEFT_WAIT = 0.5  # seconds for helpers that end with their command
ROUNDS = 20  # looks at a tree that grows while it is being stopped

_abandoned: list[subprocess.Popen[bytes]] = []  # kept, so that nothing tries to reap them


@dataclass(frozen=True, kw_only=True)
class Start:
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    run_id: str
    log: Path
    on_output: Callable[[bytes], None] | None = None  # gets each chunk, and is quick
    terminal: TerminalUse = INHERIT_TERMINAL
    log_rules: LogRules = NO_RULES
    on_streams: Callable[[Sequence[int]], None] | None = None  # gets its stdin, stdout and stderr

    def launch(self, wiring: Wiring) -> LaunchedCommand:
        return launch(
            self.command,
            environment=self.environment,
            folder=self.folder,
            run_id=self.run_id,
            streams=wiring.given,
        )


C = TypeVar("C", bound="Child")


def start_child(start: Start) -> Child:
    """Start a command; raises the OSError of exec."""
    return start_as(Child, start)


def start_as(kind: type[C], start: Start) -> C:
    wiring = wire(start.terminal)
    wiring.connect(start.terminal)
    try:
        log_file = LogFile(start.log, start.log_rules)
    except BaseException:
        wiring.close_given()
        wiring.close()
        raise
    try:
        launched = start.launch(wiring)
        if start.on_streams is not None:
            start.on_streams(wiring.given)
    except BaseException:
        wiring.close()
        log_file.close(READER_WAIT)
        raise
    finally:
        wiring.close_given()
    return kind(launched, wiring, log_file, start.run_id, start.on_output)


class WaitingCommand:
    """A command that was started ahead of its turn: below its keeper, and with nobody watching."""

    def __init__(self, start: Start) -> None:
        self._wiring, self._run_id = wire(start.terminal), start.run_id
        try:
            self._launched = start.launch(self._wiring)
        except BaseException:
            self._wiring.close()
            raise
        finally:
            self._wiring.close_given()
        self.pid = self._launched.pid

    def is_waiting(self) -> bool:
        """Whether it lives, its keeper does, and it has not printed anything."""
        now = keeper.process_snapshot(self.pid)
        lives = (
            now is not None and now.parent == self._launched.keeper.pid and now.state not in "ZX"
        )
        return lives and self._launched.keeper.poll() is None and self._wiring.is_silent()

    def watched(self, start: Start) -> Child:
        """Take it on as the child of this start; it is not to be ended here any more."""
        log_file = LogFile(start.log, start.log_rules)
        self._wiring.connect(start.terminal)
        return Child(self._launched, self._wiring, log_file, self._run_id, start.on_output)

    def end(self) -> None:
        """End it and all that it started, and wait for that."""
        end_kept(self._launched, family_of(self._launched, self._run_id))
        os.close(self._launched.status)
        self._wiring.close()


def family_of(launched: LaunchedCommand, run_id: str) -> keeper.Family:
    family = keeper.Family(launched.keeper.pid, run_id)
    family.command = launched.pid
    return family


def end_kept(launched: LaunchedCommand, family: keeper.Family) -> None:
    """Have the keeper end what is left, and do what one that was killed could not."""
    os.close(launched.control)
    try:
        launched.keeper.wait(KEEPER_WAIT)
    except subprocess.TimeoutExpired:
        _abandoned.append(launched.keeper)
    if launched.keeper.returncode != 0:
        keeper.end(family)


class Child:
    """A command that was started. ``close`` must be called; it ends whatever is left."""

    def __init__(
        self,
        launched: LaunchedCommand,
        wiring: Wiring,
        log: LogFile,
        run_id: str,
        on_output: Callable[[bytes], None] | None,
    ) -> None:
        self.pid = launched.pid
        self.keeper = launched.keeper.pid
        self.interrupts = Interrupts()  # keys typed, and signals passed on
        self._launched = launched
        self._wiring = wiring
        self._log = log
        self._family = family_of(launched, run_id)
        self._birth = keeper.process_snapshot(self.pid)
        self._exit: Exit | None = None
        self._keeper_gone = False
        self._news = threading.Event()  # the command ended, or its keeper did
        self._paused: dict[int, keeper.ProcessSnapshot] = {}  # as the user asked for it
        self._closed = False
        callbacks = PumpCallbacks(
            output=on_output,
            status=self._hear,
            interrupted=self._note_interrupts,
            suspended=self.suspend,
            may_suspend=lambda: self._front() == self.pid,
        )
        self._pump = Pump(wiring, launched.status, log, callbacks)
        self._signals = _Signals(self._pump.wake)

    def poll(self) -> Exit | None:
        """Return how the command itself ended, if it did. What it started may still run."""
        if self._exit is None and self._keeper_gone:
            now, birth = keeper.process_snapshot(self.pid), self._birth
            same = now is not None and birth is not None and now.start == birth.start
            if now is None or not same or not keeper.is_alive(self.pid, now):
                code = wait_for(self.pid)  # the kernel made it a child of ours
                self._exit = Exit() if code is None else exit_as(code)
        return self._exit

    def wait(self, timeout: float | None = None) -> Exit | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            if self._keeper_gone:
                time.sleep(LOOK_EVERY if left is None else min(LOOK_EVERY, left))
            else:
                self._news.wait(left)
        return self._exit

    def tree(self) -> tuple[int, ...]:
        return tuple(self._family.members())

    def left_running(self) -> dict[int, str]:
        """Name what the command left running, and not what is about to end by itself."""
        deadline = time.monotonic() + LEFT_WAIT
        while (members := self._family.members()) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY)
        return {pid: keeper.name_of(pid) for pid in members}

    def pass_on(self, number: signal.Signals) -> None:
        """Send an interrupt to those whom a terminal would send it, all else to the command."""
        if number == signal.SIGINT:
            self._note_interrupts(1)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._front(), number)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def at_prompt(self) -> bool:
        """Whether somebody waits for keys: a debugger, an interpreter, a question."""
        return any(
            waits_for_keys(source.descriptor)
            for source in self._wiring.sources.values()
            if source.pty
        )

    def stop(
        self,
        stopping: Stopping,
        first: signal.Signals | None = signal.SIGTERM,
    ) -> StopResult:
        """End the whole tree, mildly first. Never takes longer than ``stopping`` says."""
        return end_child(self._family, self.wait, stopping, first, self.pid)

    def suspend(self) -> None:
        """Stop the tree and ourselves, as ^Z does; returns when we are continued, and goes on."""
        if is_orphaned():  # no shell would ever continue us
            return
        stopped = self._stop_members()
        if self._wiring.terminal is not None:
            self._wiring.terminal.leave()
        stop_ourselves()
        keeper.send(stopped, signal.SIGCONT)
        self._pump.wake()

    def pause(self) -> None:
        self._paused |= self._stop_members()

    def end_pause(self) -> None:
        paused, self._paused = self._paused, {}
        keeper.send(paused, signal.SIGCONT)

    def is_stopped(self) -> bool:
        now = keeper.process_snapshot(self.pid)
        return now is not None and now.state == "T"

    def _stop_members(self) -> dict[int, keeper.ProcessSnapshot]:
        """Stop every process that runs, also those that are started meanwhile."""
        stopped: dict[int, keeper.ProcessSnapshot] = {}
        for _ in range(ROUNDS):
            members = self._family.members()
            running = {pid: seen for pid, seen in members.items() if seen.state not in "Tt"}
            if not running:
                break
            keeper.send(running, signal.SIGSTOP)
            stopped |= running
            time.sleep(keeper.LOOK_EVERY)
        return stopped

    def detach_terminal(self) -> None:
        """Continue without our terminal, which is gone; the log is still written."""
        self._pump.forget_terminal()
        for source in self._wiring.sources.values():
            if source.pty and source.output_buffer is not None:
                source.output_buffer.give_up()

    @property
    def mid_line(self) -> bool:
        """Whether what was last shown on stderr did not end its line."""
        return self._wiring.complaints is not None and self._wiring.complaints.mid_line

    def tell(self, line: str) -> None:
        """Show one line of our own on stderr, without ever waiting for it."""
        if self._wiring.complaints is not None:
            self._wiring.complaints.put_line(f"{line}\n".encode(errors="replace"))

    def close(self) -> None:
        """End what is left, write what is left, and give the terminal back."""
        if self._closed:
            return
        self._closed = True
        end_kept(self._launched, self._family)
        finished = self._pump.finish(KEEPER_WAIT)
        self._signals.restore()
        if self._wiring.terminal is not None:
            self._wiring.terminal.leave()
        self._close_outlets()
        self._log.close(READER_WAIT)
        if finished:
            self._wiring.close()
            os.close(self._launched.status)

    def _close_outlets(self) -> None:
        """End the place of our stderr last: it is told what the others missed."""
        outlets = [
            source.output_buffer for source in self._wiring.sources.values() if source.output_buffer
        ]
        complaints = self._wiring.complaints
        for output_buffer in outlets:
            if output_buffer is not complaints:
                output_buffer.close(READER_WAIT)
        untold = sum(output_buffer.untold for output_buffer in outlets)
        if untold:
            self.tell(f"rocsteady: {untold} bytes were not shown; the log has what fits into it")
        if complaints is not None:
            complaints.close(READER_WAIT)

    def _hear(self, report: bytes) -> None:
        for line in report.splitlines():
            ended = json.loads(line)
            self._exit = Exit(code=ended.get("code"), signal=ended.get("signal"))
        if not report:
            self._keeper_gone = True
        self._news.set()

    def _note_interrupts(self, times: int) -> None:
        how = taken(in_group(self._front()), signal.SIGINT)
        noted = Interrupt(at=time.monotonic(), prompt=self.at_prompt(), taken=how)
        for _ in range(times):
            self.interrupts.add(noted)

    def _front(self) -> int:
        """Return the process group that a terminal would signal."""
        for source in self._wiring.sources.values():
            if source.pty:
                with contextlib.suppress(OSError):
                    front = os.tcgetpgrp(source.descriptor)
                    if front > 0:
                        return front
        return self.pid


SignalHandler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class _Signals:
    """A changed window and a continued process are looked at right away, if we may ask for it."""

    WANTED = (signal.SIGWINCH, signal.SIGCONT)

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._before: dict[signal.Signals, SignalHandler] = {}
        if threading.current_thread() is threading.main_thread():
            for number in self.WANTED:
                self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put back what was there, unless someone else took it since."""
        if threading.current_thread() is threading.main_thread():
            for number, before in self._before.items():
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, before or signal.SIG_DFL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._wake()
        before = self._before.get(signal.Signals(number))
        if callable(before):
            before(number, frame)
