"""``--detach``: the same command again, in a session of its own, without this terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rocsteady.cli.screen import tell
from rocsteady.errors import RocsteadyError
from rocsteady.host.background import Detached, start_detached
from rocsteady.journal.journal import Journal
from rocsteady.untrusted_file import open_regular, read_exactly

OUTPUT = "detached.log"  # what such supervisors themselves had to say
WAIT = 20.0  # seconds for it to write its run down
POLL_EVERY = 0.1
SHOWN = 64 * 1024  # bytes of what it had to say
WITHOUT_TERMINAL = "--without-terminal"  # what the second one is told


def detach(words: Sequence[str], folder: Path, journal: Journal) -> int:
    """Start it, wait until its run is written down, and come back."""
    output = journal.place.folder / OUTPUT
    said = output.stat().st_size if output.exists() else 0
    command = [sys.executable, "-m", "rocsteady", "run", WITHOUT_TERMINAL, *words]
    started = start_detached(command, os.environ, folder, output)
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        name = _run_of(started, journal)
        if name:
            tell(f"rocsteady: run {name}, process {started.pid}, {started.how}.")
            tell(
                f"rocsteady: to follow its output: rocsteady logs -f {name}; to stop it:"
                f" rocsteady stop {name}"
            )
            return 0
        if started.has_ended():
            with open_regular(output) as stream:
                stream.seek(said)
                tell(read_exactly(stream, SHOWN).decode(errors="replace").rstrip("\n"))
            raise RocsteadyError("the process ended before the run started")
        time.sleep(POLL_EVERY)
    raise RocsteadyError(f"process {started.pid} did not start within {WAIT:.0f} s; see {output}")


def _run_of(started: Detached, journal: Journal) -> str:
    """Name the run of a supervisor; "" if it has not begun."""
    runs = (line.run for line in journal.runs() if line.run.ended is None)
    return next((run.name for run in runs if run.process.split(":")[1:2] == [str(started.pid)]), "")
