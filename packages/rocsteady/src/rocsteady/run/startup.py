"""How a run begins: what was left unfinished, what crashed the machine, what helped before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rocsteady.model import Decision, IntentKind
from rocsteady.run.context import Services
from rocsteady.run.recovery.machine import RunMachine
from rocsteady.store.values import Fate, Helped, RunRecord


class Startup:
    """Looks back on what came before a run."""

    def __init__(self, services: Services, machine: RunMachine, folder: Path) -> None:
        self._machine, self._folder = machine, folder
        self._journal, self._announcer = services.journal, services.announcer

    def report_unfinished(self) -> None:
        """Report and remember intents without an outcome."""
        for note in self._journal.place.notes:
            self._announcer.say(f"{note}.")
        for intent in self._journal.unfinished():
            if intent.fate not in (Fate.MACHINE_WENT_DOWN, Fate.KILLED):
                continue
            who = "the machine crashed" if intent.crashed_machine else "rocsteady was killed"
            is_start = intent.kind is IntentKind.START
            action = intent.what if is_start else f"{intent.kind.value} {intent.what}"
            self._announcer.say(f"{who} while running: {action}.")
            attempted = self._journal.attempt_of(intent) if intent.crashed_machine else None
            if attempted is not None and is_start:
                self._machine.took_down(*attempted, self._folder)
            self._journal.settle(intent, intent.fate.value, intent.fate)

    def announce(self, first: Decision, offers: Sequence[Helped]) -> None:
        """Announce what helped before, and what is begun with in place of what crashed."""
        for helped in offers:
            day = time.strftime("%Y-%m-%d", time.localtime(helped.at))
            self._announcer.say(
                f"{helped.remedy} helped this script on {day}; to start with it: --with"
                f" {helped.remedy}"
            )
        if first.crashed is not None:
            self._announcer.say(f"these settings crashed the machine before. {first.why}")


def first_attempt(earlier: RunRecord | None) -> int:
    """Return the next number; an attempt may be known only by the intent to make it."""
    if earlier is None:
        return 1
    made = [attempt.number for attempt in earlier.attempts]
    return 1 + max([*made, *(intent.attempt or 0 for intent in earlier.intents)], default=0)
