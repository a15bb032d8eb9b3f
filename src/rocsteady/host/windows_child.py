"""Native Windows: a command in a Job Object, its output carried by pipes. Unconfirmed: never run.

There is no pty, no suspend and no keeper here: the job, which closes with us, ends the tree. A
process that the command starts in the instant before it is put in the job escapes it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

assert sys.platform == "win32"  # tells mypy which system this is for

from rocsteady.errors import RocsteadyError
from rocsteady.host.child_end import OURS, Exit, How, Stopping, StopResult, TerminalUse
from rocsteady.host.interrupts import Interrupt, Interrupts
from rocsteady.host.log_limit import LogRules
from rocsteady.host.logfile import NO_RULES, Lines, LogFile
from rocsteady.host.output_buffer import Outlet
from rocsteady.host.windows_job import JobObject

RUN = "ROCSTEADY_RUN"
CHUNK = 64 * 1024
READER_WAIT = 1.0  # seconds without a byte taken, after which a reader of ours is given up
LOOK = 0.05  # seconds between looks at the job


def start_child(  # noqa: PLR0913 - each is said by name
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    run_id: str,
    log: Path,
    on_output: Callable[[bytes], None] | None = None,
    terminal: TerminalUse = OURS,
    log_rules: LogRules = NO_RULES,
) -> Child:
    """Start a command; raises the OSError of doing so. ``on_output`` gets each chunk."""
    kept = LogFile(log, log_rules)
    job = JobObject()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if terminal.stdin is None else terminal.stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, RUN: run_id},
            cwd=folder,
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
        )
        job.add(int(process._handle))  # type: ignore[attr-defined]  # noqa: SLF001 - its only door
    except BaseException:
        job.close()
        kept.close(READER_WAIT)
        raise
    return Child(process, job, kept, terminal, on_output)


class Child:
    """A command that was started. ``close`` must be called; it ends whatever is left."""

    contained_by = "job"
    keeper = 0  # Windows needs none

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        job: JobObject,
        log: LogFile,
        terminal: TerminalUse,
        on_output: Callable[[bytes], None] | None,
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid = process.pid
        self.interrupts = Interrupts()  # that were passed on
        self._process = process
        self._job = job
        self._log = log
        self._logging = threading.Lock()
        self._on_output = on_output
        self._outlets: list[Outlet] = []
        self._complaints: Outlet | None = None
        self._threads: list[threading.Thread] = []
        self._closed = False
        for stream, ours in ((process.stdout, terminal.stdout), (process.stderr, terminal.stderr)):
            self._complaints = None if ours is None else Outlet(ours)
            if self._complaints is not None:
                self._outlets.append(self._complaints)
            arguments = (stream.fileno(), self._complaints)
            self._threads.append(threading.Thread(target=self._carry, args=arguments, daemon=True))
        for thread in self._threads:
            thread.start()

    def poll(self) -> Exit | None:
        """Tell how the command itself ended, if it did."""
        code = self._process.poll()
        return None if code is None else Exit(code=code)

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait for the command itself, at most so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        return self.poll()

    def tree(self) -> tuple[int, ...]:
        """Give every process in the job."""
        return self._job.members()

    def left_running(self) -> dict[int, str]:
        """Tell nothing: names of processes are not looked up on Windows."""
        return {}

    def pass_on(self, number: signal.Signals) -> None:
        """Send the console's break, the only one that a group of its own can be sent."""
        if number == signal.SIGINT:
            self.interrupts.add(Interrupt(at=time.monotonic()))
            self._break()

    def at_prompt(self) -> bool:
        """Tell whether somebody waits for keys, which cannot be told on Windows."""
        return False

    def stop(
        self,
        stopping: Stopping,
        first: signal.Signals | None = signal.SIGINT,
        futile: Callable[[], bool] | None = None,
    ) -> StopResult:
        """End everything in the job: a break, then the kill; Windows knows nothing in between."""
        del futile  # processes cannot be inspected here
        began = time.monotonic()
        how = How.BY_ITSELF
        if self._job.members():
            how = How.KILLED
            if first is not None:
                self._break()
                if self._empties(stopping.interrupt_wait.total_seconds()):
                    how = How.INTERRUPTED
        if how is How.KILLED:
            self._job.kill()
            if not self._empties(stopping.kill_wait.total_seconds()):
                how = How.UNKILLABLE
        seconds = time.monotonic() - began
        left = self._job.members()
        return StopResult(exit=self.poll(), unkillable=left, seconds=seconds, how=how)

    def suspend(self) -> None:
        """Refuse."""
        raise RocsteadyError("Windows has no way to suspend a run and continue it from a shell.")

    def resume(self) -> None:
        """Refuse."""
        raise RocsteadyError("Windows has no way to suspend a run and continue it from a shell.")

    def pause(self) -> None:
        """Refuse."""
        raise RocsteadyError("Windows has no way to pause a run.")

    def end_pause(self) -> None:
        """Do nothing: there is no pause."""

    def is_stopped(self) -> bool:
        """Say that it is not: there is no pause."""
        return False

    def detach_terminal(self) -> None:
        """Show nothing any more; the log goes on."""
        for outlet in self._outlets:
            outlet.give_up()

    @property
    def mid_line(self) -> bool:
        """Whether what was last shown on stderr did not end its line."""
        return self._complaints is not None and self._complaints.mid_line

    def tell(self, line: str) -> None:
        """Show one line of our own on stderr, without ever waiting for it."""
        if self._complaints is not None:
            start = "\n" if self._complaints.mid_line else ""
            self._complaints.put(f"{start}{line}\n".encode(errors="replace"))

    def flush(self, within: float) -> bool:
        """Wait until the log has all that was printed so far, as long as the disk moves."""
        return self._log.flush(within)

    def close(self) -> None:
        """End what is left, and write what is left."""
        if self._closed:
            return
        self._closed = True
        self._job.close()
        for thread in self._threads:
            thread.join(READER_WAIT)
        untold = sum(outlet.untold for outlet in self._outlets)
        if untold:
            self.tell(f"rocsteady: {untold} bytes were not shown; the log has them")
        for outlet in self._outlets:
            outlet.close(READER_WAIT)
        self._log.close(READER_WAIT)

    def _break(self) -> None:
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.CTRL_BREAK_EVENT)

    def _empties(self, within: float) -> bool:
        deadline = time.monotonic() + within
        while self._job.members():
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK)
        return True

    def _carry(self, descriptor: int, outlet: Outlet | None) -> None:
        lines = Lines()
        while chunk := os.read(descriptor, CHUNK):
            with self._logging:  # one stream at a time, as the log asks
                if self._on_output is not None:
                    with contextlib.suppress(Exception):  # who counts must not stop the bytes
                        self._on_output(chunk)
                self._log.add(lines, chunk)
            if outlet is not None:
                outlet.put(chunk)
        with self._logging:
            self._log.finish(lines)
