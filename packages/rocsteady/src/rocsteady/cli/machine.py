"""``rocsteady machine``: what was read of this machine, and a recording of it to send."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from rocsteady import __version__
from rocsteady.cli.machine_options import open_root, python_option, root_option
from rocsteady.doctor.knowledge.reader import Knowledge, load_knowledge
from rocsteady.doctor.machine.machine import examine
from rocsteady.doctor.machine.recording import record
from rocsteady.doctor.machine.view import View
from rocsteady.errors import ExaminationError
from rocsteady.printable import printable_json
from rocsteady.screens.machine import render_machine
from rocsteady.screens.screen import layout, show, show_json, tell, without_secrets
from rocsteady.store.redaction.machine_names import redactor_here
from rocsteady.system.atomic_file import write_whole


@click.command("machine")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the facts to FILE for sharing, with names and serial numbers removed.",
)
@python_option
@root_option
def command(*, as_json: bool, record: Path | None, python: str | None, root: Path | None) -> None:
    """Show every fact that was read. For problems, see rocsteady doctor."""
    knowledge = load_knowledge()
    machine, view = examine(open_root(root, python), knowledge.variables)
    if record is not None:
        _write(record, view, knowledge)
    elif as_json:
        show_json(machine)
    else:
        width, colour = layout(sys.stdout)
        show(render_machine(without_secrets(machine), knowledge, width=width, colour=colour))


def _write(path: Path, view: View, knowledge: Knowledge) -> None:
    today = datetime.now(tz=UTC).date().isoformat()
    note = f"recorded by rocsteady {__version__} on {today}"
    redactor = redactor_here(view.environment or {})
    recording = record(view, redactor, knowledge.variables, note)
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
