"""``--detach``: the same command again, in a session of its own, without this terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rocsteady_train.untrusted_file import open_regular, read_exactly

from rocsteady.errors import RocsteadyError
from rocsteady.model import RunOutcome
from rocsteady.screens.screen import tell
from rocsteady.store.journal import Journal
from rocsteady.store.values import RunLine
from rocsteady.system.background import Detached, start_detached

OUTPUT = "detached.log"  # what such supervisors themselves had to say
WAIT = 20.0  # seconds for it to write its run down
POLL_EVERY = 0.1
SHOWN = 64 * 1024  # bytes of what it had to say
WITHOUT_TERMINAL = "--without-terminal"  # what the second one is told


def detach(words: Sequence[str], folder: Path, journal: Journal) -> str:
    """Start it, wait until its first attempt begins, and return the name of its run."""
    output = journal.place.folder / OUTPUT
    offset = output.stat().st_size if output.exists() else 0
    before = {line.run.name: line.attempts for line in journal.runs()}
    command = [sys.executable, "-m", "rocsteady", "run", WITHOUT_TERMINAL, *words]
    since, started = time.time(), start_detached(command, os.environ, folder, output)
    deadline = time.monotonic() + WAIT
    name, begun = "", False
    while time.monotonic() < deadline and not begun:
        has_ended = started.has_ended()
        time.sleep(POLL_EVERY)
        line = _run_of(started, since, journal)
        name = line.run.name if line else ""
        begun = line is not None and _has_begun(line, before.get(name, 0), journal)
        refused = line is not None and line.run.outcome not in (RunOutcome.NONE, RunOutcome.DONE)
        if refused or (has_ended and not begun):
            with open_regular(output) as stream:
                stream.seek(offset)
                tell(read_exactly(stream, SHOWN).decode(errors="replace").rstrip("\n"))
            raise RocsteadyError("the process ended before the run started")
    if not name:
        why = f"process {started.pid} did not start within {WAIT:.0f} s; see {output}"
        raise RocsteadyError(why)
    tell(f"rocsteady: run {name}, process {started.pid}, {started.how}.")
    tell(
        f"rocsteady: to follow its output: rocsteady logs -f {name}; to stop it:"
        f" rocsteady stop {name}"
    )
    return name


def _has_begun(line: RunLine, attempts: int, journal: Journal) -> bool:
    """Return whether a later attempt is watched: a command that cannot be started never is."""
    if line.run.outcome is RunOutcome.DONE or line.attempts <= attempts:
        return line.run.outcome is RunOutcome.DONE
    progress = journal.story(line.run.name).progress
    return any(bucket.attempt == line.attempts for bucket in progress)


def _run_of(started: Detached, since: float, journal: Journal) -> RunLine | None:
    for line in journal.runs():
        is_over = line.run.ended is not None and line.run.ended < since
        if not is_over and line.run.process.split(":")[1:2] == [str(started.pid)]:
            return line
    return None
