"""Intent before action: what might take the machine down is on disk before it is done.

An intent without an outcome is itself a finding. From another boot of this machine it says: during
this, the machine went down.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import final

from rocsteady.store.identity import Identity, is_alive
from rocsteady.store.rows import Work, select
from rocsteady.store.values import Fate, Intent, Unfinished

DONE = "done"
NOT_DONE = "not done: the journal's disk was too slow"


@final
class IntentHandle:
    """An action that is on disk and not yet done. Its outcome is recorded once, whichever way."""

    def __init__(self, number: int, record: Callable[[int, str], None]) -> None:
        self.number = number
        self._record = record
        self._ended = False

    def end(self, outcome: str = DONE) -> None:
        """Record what came of it. The first word counts."""
        if not self._ended:
            self._ended = True
            self._record(self.number, outcome)

    def __enter__(self) -> IntentHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(DONE if kind is None else f"failed: {kind.__name__}: {error}")


def settled(number: int, outcome: str, at: float) -> Work:
    """Return the writing of an outcome."""
    return lambda connection: connection.execute(
        "UPDATE intents SET outcome = ?, ended = ? WHERE id = ? AND outcome IS NULL",
        (outcome[:4000], at, number),
    )


def unfinished(connection: sqlite3.Connection, here: Identity) -> tuple[Unfinished, ...]:
    """Return the intents without an outcome, oldest first."""
    intents = select(connection, Intent, "WHERE outcome IS NULL ORDER BY id")
    return tuple(Unfinished(intent=intent, fate=fate(intent, here)) for intent in intents)


def fate(intent: Intent, here: Identity) -> Fate:
    """Tell why an intent has no outcome, as seen from here."""
    if not (intent.boot_id and here.boot_id):
        return Fate.UNKNOWN
    if intent.boot_id != here.boot_id:
        same = intent.machine == here.machine
        return Fate.MACHINE_WENT_DOWN if same else Fate.UNKNOWN
    if intent.process == here.process:
        return Fate.UNDER_WAY
    alive = is_alive(intent.process)
    if alive is None:
        return Fate.UNKNOWN
    return Fate.UNDER_WAY if alive else Fate.KILLED
