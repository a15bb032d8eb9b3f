"""``rocsteady machine``: the facts of this machine, to send, or to paste in an issue."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from rocsteady import __version__
from rocsteady.cli.options import open_root, python_option, root_option
from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import examine
from rocsteady.doctor.machine.recording import record
from rocsteady.doctor.machine.view import View
from rocsteady.errors import ExaminationError
from rocsteady.printable import printable_json
from rocsteady.screens.doctor import render_paste
from rocsteady.screens.screen import show, show_json, tell, without_secrets
from rocsteady.store.identity import machine_fingerprint
from rocsteady.store.machine_history import memory_to_read
from rocsteady.store.redaction import redactor_here
from rocsteady.system.atomic_file import write_whole


@click.command("machine")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--record",
    "recording",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the facts to FILE for sharing, with names and serial numbers removed, and exit.",
)
@python_option
@root_option
def command(
    *, as_json: bool, recording: Path | None, python: str | None, root: Path | None
) -> None:
    """Print this machine as a block for an issue: all that the doctor sees, without names.

    With --json every fact, as it is. Only reads files: imports no torch and runs no vendor tool.

    Exit code: 0, 2 incorrect usage, 3 could not examine the machine.
    """
    if as_json and recording:
        raise click.UsageError("--json cannot be combined with --record")
    knowledge = doctors_knowledge()
    machine, view = examine(open_root(root, python), knowledge.variables)
    if recording is not None:
        _record(recording, view, knowledge)
    elif as_json:
        show_json(machine)
    else:
        seen = memory_to_read().observations(machine_fingerprint()) if root is None else ()
        diagnosis = diagnose(machine, knowledge, observations=seen)
        block = render_paste(without_secrets(diagnosis))
        show(redactor_here(view.environment or {}).text(block))


def _record(path: Path, view: View, knowledge: Knowledge) -> None:
    note = f"recorded by rocsteady {__version__} on {datetime.now(tz=UTC).date().isoformat()}"
    recording = record(view, redactor_here(view.environment or {}), knowledge.variables, note)
    text = msgspec.json.format(msgspec.json.encode(recording), indent=1).decode()
    content = printable_json(text).encode() + b"\n"
    try:
        write_whole(path, content)
    except OSError as error:
        raise ExaminationError(f"{path}: {error.strerror}") from None
    tell(f"Wrote {len(recording.files):,} paths ({len(content):,} bytes) to {path}.")
    tell(
        "Secrets, serial numbers, host names, user names and home folders were replaced. Read the"
        " file before you send it; nothing was sent."
    )
