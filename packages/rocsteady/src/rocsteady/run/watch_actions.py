"""Does to a running attempt what its user asks for in ``rocsteady watch``.

A paused attempt is not judged: it makes no progress because the user wants none. The journal has a
pause as an intent, which has its outcome once the run is continued.
"""

from __future__ import annotations

from rocsteady.errors import RocsteadyError
from rocsteady.hangs.collect import stacks_text
from rocsteady.hangs.native_stacks import NativeStacks
from rocsteady.hangs.snapshot import take_snapshot
from rocsteady.model import IntentKind
from rocsteady.run.attempt_context import AttemptContext, AttemptTools
from rocsteady.run.engines.processes import AttemptProcesses
from rocsteady.run.watch_requests import STACKS, RequestKind, take_request
from rocsteady.store.intents import IntentHandle
from rocsteady.store.redaction.redactor import hide_secrets
from rocsteady.system.atomic_file import write_whole


class RequestedActions:
    """Takes requests up, one a tick."""

    def __init__(self, setting: AttemptContext, means: AttemptTools, known: NativeStacks) -> None:
        self._setting, self._means, self._known = setting, means, known
        self._pause: IntentHandle | None = None  # while there is one
        self._interrupts = 0  # before the pause

    @property
    def paused(self) -> bool:
        """Tell whether the user has paused it."""
        return self._pause is not None

    def act(self, child: AttemptProcesses) -> None:
        """Do what was asked since the last tick."""
        wanted = take_request(self._setting.records)
        if self._pause is not None:
            interrupted = len(child.interrupts) > self._interrupts  # which it must hear
            if wanted is RequestKind.CONTINUE or interrupted or not child.is_stopped():
                self.end_pause(child)
        elif wanted is RequestKind.PAUSE:
            self._begin_pause(child)
        if wanted is RequestKind.STACKS:
            self._write_stacks(child)

    def end_pause(self, child: AttemptProcesses) -> None:
        """Continue it, if it is paused."""
        if self._pause is None:
            return
        child.end_pause()
        self._pause.end("continued")
        self._pause = None
        self._means.announcer.say("continued.")

    def _begin_pause(self, child: AttemptProcesses) -> None:
        setting, say = self._setting, self._means.announcer.say
        if self._means.settings.observe:
            say("not paused: rocsteady only observes this run.")
            return
        what = f"attempt {setting.number}"
        try:
            intent = self._means.journal.intend(
                IntentKind.PAUSE, what, run=setting.run, attempt=setting.number
            )
        except RocsteadyError as error:
            say(f"not paused: {error}.")
            return
        try:
            child.pause()
        except RocsteadyError as error:
            intent.end(f"not paused: {error}")
            say(f"not paused: {error}")
            return
        self._pause, self._interrupts = intent, len(child.interrupts)
        say(
            f"paused by the user. To continue: rocsteady watch {setting.records.name}, then press p"
        )

    def _write_stacks(self, child: AttemptProcesses) -> None:
        taken = take_snapshot(
            child.tree(),
            stacks=True,
            within=self._means.settings.snapshot_within,
            known=self._known,
        )
        lines = map(hide_secrets, stacks_text(taken).split("\n"))
        try:
            write_whole(self._setting.records / STACKS, "\n".join(lines).encode())
        except OSError as error:
            self._means.announcer.say(f"the stacks could not be saved: {error.strerror}.")
