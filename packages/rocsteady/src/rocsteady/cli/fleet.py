"""``rocsteady fleet``: how the machines of a cluster differ."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.fleet import fleet_report
from rocsteady.screens.fleet import render_fleet
from rocsteady.screens.screen import present

ALL_MATCH, SOME_DIFFER, UNREADABLE = 0, 1, 3  # machines


@click.command("fleet")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, *, files: tuple[Path, ...], as_json: bool) -> None:
    """Compare many machines: which match, what one lacks, and which rules fire on some only.

    FILES are recordings (machine --record) or facts (machine --json), one a machine.

    Exit code: 0 all machines of a group match, 1 some do not, 2 incorrect usage, 3 a file could
    not be read.
    """
    knowledge = doctors_knowledge()
    report = fleet_report(files, knowledge)
    present(report, partial(render_fleet, rules=knowledge.rules), as_json=as_json)
    if report.unreadable:
        ctx.exit(UNREADABLE)
    differ = any(group.different or group.partial_rules for group in report.groups)
    ctx.exit(SOME_DIFFER if differ else ALL_MATCH)
