"""How a run begins: what was left unfinished, what crashed the machine, what helped before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.model import Decision, IntentKind
from rocsteady.run.context import Services
from rocsteady.run.recovery.machine import RunMachine
from rocsteady.store.values import Fate, Helped, RunRecord


def report_unfinished(services: Services, machine: RunMachine, folder: Path) -> None:
    """Report and remember intents without an outcome."""
    journal, say = services.journal, services.announcer.say
    for note in journal.place.notes:
        say(f"{note}.")
    for intent in journal.unfinished():
        if intent.fate not in (Fate.MACHINE_WENT_DOWN, Fate.KILLED):
            continue
        who = "the machine crashed" if intent.crashed_machine else "rocsteady was killed"
        is_start = intent.kind is IntentKind.START
        action = intent.what if is_start else f"{intent.kind.value} {intent.what}"
        say(f"{who} while running: {action}.")
        attempted = journal.attempt_of(intent) if intent.crashed_machine else None
        if attempted is not None and is_start:
            machine.took_down(*attempted, folder)
            run, attempt = attempted
            with suppress(RocsteadyError):  # a damaged journal costs one remedy
                progress = journal.story(run.name).progress
                machine.saw(it for it in progress if it.attempt == attempt.number)
        journal.settle(intent, intent.fate.value, intent.fate)


def announce_begin(say: Callable[[str], None], first: Decision, offers: Sequence[Helped]) -> None:
    """Announce what helped before, and what is begun with in place of what crashed."""
    for helped in offers:
        day = time.strftime("%Y-%m-%d", time.localtime(helped.at))
        say(
            f"{helped.remedy} helped this script on {day}; to start with it: --with {helped.remedy}"
        )
    if first.crashed is not None:
        say(f"these settings crashed the machine before. {first.why}")


def first_attempt(earlier: RunRecord | None) -> int:
    """Return the next number; an attempt may be known only by the intent to make it."""
    if earlier is None:
        return 1
    made = [attempt.number for attempt in earlier.attempts]
    return 1 + max([*made, *(intent.attempt or 0 for intent in earlier.intents)], default=0)
