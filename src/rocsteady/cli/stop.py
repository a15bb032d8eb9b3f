"""``rocsteady stop``: ask the supervisor of a run to end it, and wait until it has."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import click

from rocsteady.errors import RocsteadyError
from rocsteady.journal.journal import Journal
from rocsteady.journal.place import find_place

WAIT = 30.0  # seconds: longer than stopping may take


@click.command("stop")
@click.argument("name", metavar="RUN")
def command(*, name: str) -> None:
    """End a run mildly: its script is asked first, and no attempt follows."""
    journal = Journal(find_place(Path.cwd()))
    try:
        line = next((line for line in journal.runs() if line.run.name == name), None)
        if line is None:
            raise RocsteadyError(f"there is no run {name!r}; rocsteady runs lists them")
        if not line.alive:
            raise RocsteadyError(f"{name} is not running, or not on this machine")
        pid = int(line.run.process.split(":")[0].split("-")[0])
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            time.sleep(0.2)
            now = next(found for found in journal.runs() if found.run.name == name)
            if now.run.ended is not None or not now.alive:
                click.echo(f"rocsteady: {name} has ended.", err=True)
                return
        raise RocsteadyError(f"{name} was asked to end and has not yet")
    finally:
        journal.close()
