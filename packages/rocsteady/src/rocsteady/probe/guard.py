"""What is done around each try: an intent on the disk before it, and what came of it remembered.

A try may take the machine down. Its intent then has no outcome, and it is not tried again unasked.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable
from typing import Self

import msgspec

from rocsteady.model import IntentKind, Observation, ProbeOutcome
from rocsteady.store.journal import IntentHandle, Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import Fate
from rocsteady.typed_values import decode


class Guard:
    """Ends on SIGTERM as on ^C, and writes what is left."""

    def __init__(self, journal: Journal, memory: Memory, software: str = "") -> None:
        self.journal, self.memory, self.software = journal, memory, software

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)
        self.journal.close()
        self.memory.close()

    def trying(self, probe: str, variant: str) -> IntentHandle:
        said = {"probe": probe, "variant": variant, "software": self.software}
        return self.journal.intend(IntentKind.PROBE, json.dumps(said))

    def observations(self) -> tuple[Observation, ...]:
        return self.memory.observations(self.journal.here.machine)

    def remember(self, observation: Observation) -> None:
        if observation.outcome is not ProbeOutcome.NOT_RUN:
            self.memory.observed(self.journal.here.machine, observation)

    def recover(self, say: Callable[[str], None]) -> None:
        """Remember which tries crashed the machine: their intents have no outcome."""
        for intent in self.journal.unfinished():
            if intent.kind is not IntentKind.PROBE or intent.fate in (None, Fate.UNDER_WAY):
                continue
            self.journal.settle(intent, intent.fate.value, intent.fate)
            if intent.crashed_machine:
                seen = _went_down_in(intent.what, intent.at, self.software)
                self.remember(seen)
                when = time.strftime("%Y-%m-%d %H:%M", time.localtime(seen.at))
                say(f"rocsteady: the machine went down during {seen.title} on {when}.")
        self.memory.flush()


def has_gone_down(probe: str, variant: str, observations: tuple[Observation, ...]) -> bool:
    """Whether the machine went down in it the last time."""
    own = [each for each in observations if (each.probe, each.variant) == (probe, variant)]
    last = max(own, key=lambda each: each.at, default=None)
    return last is not None and last.outcome is ProbeOutcome.WENT_DOWN


def _went_down_in(what: str, at: float, software: str) -> Observation:
    """Read an intent back; one that cannot be read is still a try that did this."""
    intent: dict[str, object] = {}
    with contextlib.suppress(msgspec.MsgspecError):
        intent = decode(what, type=dict[str, object])
    return Observation(
        probe=str(intent.get("probe", "unknown")),
        variant=str(intent.get("variant", "")),
        outcome=ProbeOutcome.WENT_DOWN,
        why="the machine crashed during it",
        software=str(intent.get("software", software)),
        at=at,
    )
