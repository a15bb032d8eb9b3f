"""``rocsteady machine``: what was read of this machine, and a recording of it to send."""

from __future__ import annotations

import platform
import sys
from datetime import datetime, timezone
from pathlib import Path

import click
import msgspec

from rocsteady import __version__
from rocsteady.cli.roots import open_root, python_option, root_option
from rocsteady.cli.screen import layout, show
from rocsteady.errors import ExaminationError
from rocsteady.host.files import write_whole
from rocsteady.knowledge.reader import Knowledge, load_knowledge
from rocsteady.machine.machine import examine
from rocsteady.machine.record import record
from rocsteady.machine.view import View
from rocsteady.redaction.redactor import Redactor
from rocsteady.report.machine import render_machine


@click.command("machine")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the facts to FILE, without names and serial numbers, to share.",
)
@python_option
@root_option
def command(*, as_json: bool, record: Path | None, python: str | None, root: Path | None) -> None:
    """Show every fact that was read, without judging it (see rocsteady doctor)."""
    knowledge = load_knowledge()
    machine, view = examine(open_root(root, python), knowledge.variables)
    if record is not None:
        _write(record, view, knowledge)
    elif as_json:
        show(msgspec.json.format(msgspec.json.encode(machine), indent=2).decode() + "\n")
    else:
        width, colour = layout(sys.stdout)
        show(render_machine(machine, knowledge, width=width, colour=colour))


def _write(path: Path, view: View, knowledge: Knowledge) -> None:
    today = datetime.now(tz=timezone.utc).date().isoformat()
    note = f"recorded by rocsteady {__version__} on {today}"
    recording = record(view, _redactor(view), knowledge.variables, note)
    content = msgspec.json.format(msgspec.json.encode(recording), indent=1) + b"\n"
    try:
        write_whole(path, content)
    except OSError as error:
        raise ExaminationError(f"{path}: {error.strerror}") from None
    click.echo(f"{len(recording.files)} paths, {len(content)} bytes written to {path}.", err=True)
    click.echo(
        "Serials, host, user and home were replaced. Read it before you send it; nothing was sent.",
        err=True,
    )


def _redactor(view: View) -> Redactor:
    environment = view.environment or {}
    names = ("HOME", "USERPROFILE")
    homes = [environment[name] for name in names if environment.get(name)]
    users = [environment.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
    users += [home.replace("\\", "/").rstrip("/").rpartition("/")[2] for home in homes]
    return Redactor(
        homes=homes, users=users, hosts=[platform.node(), platform.node().partition(".")[0]]
    )
