"""``rocsteady stop``: ask the supervisor of a run to end it, and wait until it has."""

from __future__ import annotations

import time

import click

from rocsteady.cli.project import find_run, nothing_run, open_journal
from rocsteady.errors import RocsteadyError
from rocsteady.model import RunOutcome
from rocsteady.screens.screen import tell
from rocsteady.store.identity import is_alive, is_supervisor
from rocsteady.store.journal import Journal
from rocsteady.store.values import Run
from rocsteady.system.background import ask_to_end

STOP_WITHIN = 45.0  # seconds: longer than stopping may take
POLL_EVERY = 0.2


@click.command("stop")
@click.argument("name", metavar="RUN", required=False)
def command(*, name: str | None) -> None:
    """Stop a run gracefully and do not restart it."""
    if name is None:
        raise click.UsageError("name the run to stop. To list them: rocsteady status")
    stop(name)


def stop(name: str) -> None:
    """Ask the supervisor of a run to end it, and wait until it has."""
    with open_journal(name) as journal:
        if journal is None:
            raise nothing_run(name)
        line = find_run(journal, name)
        if line.run.ended is not None or line.alive is False:
            left = line.run.outcome is not RunOutcome.DONE
            more = f"; to continue it: rocsteady run --resume {name}" if left else ": it is done"
            raise RocsteadyError(f"{name} is not running{more}")
        if line.alive is None:
            raise RocsteadyError(f"{name} may run on another machine or in another container")
        ask_supervisor(line.run, journal)
        deadline = time.monotonic() + STOP_WITHIN
        while time.monotonic() < deadline:
            time.sleep(POLL_EVERY)
            if not is_alive(line.run.process):  # and so all that it had to do is done
                tell(f"rocsteady: {name} has ended.")
                return
        raise RocsteadyError(f"{name} was asked to stop but is still running")


def ask_supervisor(run: Run, journal: Journal) -> None:
    """Signal the very process that the journal names: its number, and its moment of birth.

    The journal may have come with the project, so the process must be one that writes it.
    """
    number, path = int(run.process.split(":")[1]), journal.place.database

    def is_its_own() -> bool:
        return is_alive(run.process) is True and is_supervisor(number, path)

    try:
        asked = ask_to_end(number, is_its_own)
    except PermissionError:
        raise RocsteadyError(f"{run.name} belongs to another user") from None
    if not asked:
        raise RocsteadyError(f"{run.name} is no longer running")
