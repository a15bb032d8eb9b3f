"""SIGTERM works even if the supervisor's main thread does not.

Python runs signal handlers in the main thread, between two instructions. A main thread that waits
in the kernel, for a disk that does not answer, say, never gets there. So the interpreter also
writes each signal to a pipe, and a thread of its own reads it: if nobody has reacted in time, that
thread ends the script and the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta

from rocsteady.exit_codes import TERMINATED
from rocsteady.model import RunOutcome
from rocsteady.run.context import Services
from rocsteady.run.engines.plain_command import AttemptProcesses
from rocsteady.store.values import Run
from rocsteady.system.child_end import Stopping

REACT_WITHIN = 1.0  # seconds, after which the thread acts itself
LEAVE_WITHIN = 0.5  # seconds for the record of the run and the terminal
RECORD_WITHIN = timedelta(seconds=0.3)


class StopDeadline:
    """Watches that SIGTERM is acted on. Only for the main thread of a POSIX system."""

    def __init__(self, run: Run, services: Services, stopping: Stopping) -> None:
        self._run, self._journal, self._announcer = run, services.journal, services.announcer
        self._stopping = stopping
        self._child: AttemptProcesses | None = None
        self._reacted = threading.Event()
        self._writer: int | None = None
        self._before = -1

    def start(self) -> None:
        if threading.current_thread() is threading.main_thread():
            reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            threading.Thread(
                target=self._listen, args=(reader,), name="rocsteady-stop", daemon=True
            ).start()

    def reacted(self) -> None:
        """Announce that the request is being acted on."""
        self._reacted.set()

    @contextlib.contextmanager
    def over(self, child: AttemptProcesses) -> Iterator[None]:
        """Name the script that would have to be ended."""
        self._child = child
        try:
            yield
        finally:
            self._child = None

    def stop(self) -> None:
        """Listen no more; what is under way is finished by the main thread."""
        self.reacted()
        if self._writer is not None:
            signal.set_wakeup_fd(self._before)
            os.close(self._writer)  # ends the thread
            self._writer = None

    def _listen(self, reader: int) -> None:
        with os.fdopen(reader, "rb", buffering=0) as signals:  # open until the end: later ones come
            while heard := signals.read(64):
                if signal.SIGTERM in heard:
                    self._enforce()

    def _enforce(self) -> None:
        """End the script and the supervisor, unless the main thread does so in time."""
        if self._reacted.wait(REACT_WITHIN):
            return
        child = self._child
        if child is not None:
            with contextlib.suppress(Exception):  # whatever is wrong, we must end
                child.stop(self._stopping, first=signal.SIGTERM)
        if self._reacted.is_set():
            return
        leaving = threading.Thread(target=self._leave, name="rocsteady-leave", daemon=True)
        leaving.start()
        leaving.join(LEAVE_WITHIN)
        os._exit(TERMINATED)  # the keeper ends what is left of the script

    def _leave(self) -> None:
        """Record that the run was stopped, and give the terminal back."""
        self._announcer.say("stopped. The supervisor did not respond in time and was killed too.")
        self._journal.end_run(self._run, RunOutcome.STOPPED)
        self._journal.close(RECORD_WITHIN)
        if (child := self._child) is not None:
            child.close()
