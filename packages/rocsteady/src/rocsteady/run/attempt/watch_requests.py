"""What ``rocsteady watch`` asks of a run: pause, continue, stacks.

A request is a file in the run's folder. The supervisor takes it up within a tick and removes it.
Only a file of the supervisor's own user counts: that user could also signal the run. A request of
an older or newer version is ignored.
"""

from __future__ import annotations

import contextlib
import os
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rocsteady_train.untrusted_file import open_regular, read_exactly

from rocsteady.errors import RocsteadyError
from rocsteady.model import IntentKind, Value
from rocsteady.store.journal import IntentHandle
from rocsteady.store.redaction import hide_secrets
from rocsteady.system.atomic_file import write_whole
from rocsteady.typed_values import decode

if TYPE_CHECKING:  # what asks needs nothing of a run
    from rocsteady.run.context import AttemptContext, Services
    from rocsteady.run.engines.plain_command import AttemptProcesses
    from rocsteady.run.options import RunOptions

REQUEST_FILE = "request.json"
STACKS = "stacks.txt"  # the answer to one for stacks
REQUEST_LIMIT = 4096  # bytes
VALID_SECONDS = 60.0  # seconds; an older one was meant for another attempt
VERSION = 1


class RequestKind(Enum):
    PAUSE = "pause"
    CONTINUE = "continue"
    STACKS = "stacks"


class UserRequest(Value, frozen=True, kw_only=True):
    version: int = VERSION
    what: RequestKind
    at: float


def put_request(folder: Path, what: RequestKind) -> None:
    """Ask the supervisor of the run with this folder. Raises OSError."""
    request = UserRequest(what=what, at=time.time())
    write_whole(folder / REQUEST_FILE, msgspec.json.encode(request))


def take_request(folder: Path) -> RequestKind | None:
    """Return what was asked since the last time, and remove it."""
    path = folder / REQUEST_FILE
    if not os.path.lexists(path):
        return None
    try:
        with open_regular(path, follow=False) as stream:
            owner = os.fstat(stream.fileno()).st_uid
            text = read_exactly(stream, REQUEST_LIMIT)
    except OSError:
        text, owner = b"", -1
    with contextlib.suppress(OSError):
        path.unlink()
    if hasattr(os, "geteuid") and owner != os.geteuid():
        return None
    try:
        request = decode(text, type=UserRequest)
    except msgspec.DecodeError:
        return None
    fresh = abs(time.time() - request.at) <= VALID_SECONDS
    return request.what if fresh and request.version == VERSION else None


# Does to a running attempt what its user asks for in ``rocsteady watch``.
#
# A paused attempt is not judged: it makes no progress because the user wants none. The journal has
# a pause as an intent, which has its outcome once the run is continued.


class RequestedActions:
    """Takes requests up, one a tick."""

    def __init__(
        self,
        context: AttemptContext,
        options: RunOptions,
        services: Services,
    ) -> None:
        self._context, self._options, self._services = context, options, services
        self._pause: IntentHandle | None = None  # while there is one
        self._interrupts = 0  # before the pause

    @property
    def paused(self) -> bool:
        return self._pause is not None

    def act(self, child: AttemptProcesses) -> None:
        wanted = take_request(self._context.spec.records)
        if self._pause is not None:
            interrupted = len(child.interrupts) > self._interrupts  # which it must hear
            if wanted is RequestKind.CONTINUE or interrupted or not child.is_stopped():
                self.end_pause(child)
        elif wanted is RequestKind.PAUSE:
            self._begin_pause(child)
        if wanted is RequestKind.STACKS:
            self._write_stacks(child)

    def end_pause(self, child: AttemptProcesses) -> None:
        if self._pause is None:
            return
        child.end_pause()
        self._pause.end("continued")
        self._pause = None
        self._services.announcer.say("continued.")

    def _begin_pause(self, child: AttemptProcesses) -> None:
        context, say = self._context, self._services.announcer.say
        if self._options.observe:
            say("not paused: rocsteady only observes this run.")
            return
        what = f"attempt {context.number}"
        try:
            intent = self._services.journal.intend(
                IntentKind.PAUSE, what, run=context.spec.run.id, attempt=context.number
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
            "paused by the user. To continue:"
            f" rocsteady watch {context.spec.run.name}, then press p"
        )

    def _write_stacks(self, child: AttemptProcesses) -> None:
        from rocsteady.hangs.looking.collect import stacks_text  # noqa: PLC0415 - what asks takes none
        from rocsteady.hangs.looking.snapshot import take_snapshot  # noqa: PLC0415

        taken = take_snapshot(
            child.tree(),
            stacks=True,
            within=self._options.timing.snapshot_within,
        )
        lines = map(hide_secrets, stacks_text(taken).split("\n"))
        try:
            write_whole(self._context.spec.records / STACKS, "\n".join(lines).encode())
        except OSError as error:
            self._services.announcer.say(f"the stacks could not be saved: {error.strerror}.")
