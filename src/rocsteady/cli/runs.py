"""``rocsteady runs``: every run of this project, with its step, rate and end."""

from __future__ import annotations

import sys
import time

import click
import msgspec

from rocsteady.cli.kept import kept_journal
from rocsteady.cli.screen import layout, show
from rocsteady.report.runs import render_runs


@click.command("runs")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(*, as_json: bool) -> None:
    """List the runs of this project, newest first."""
    with kept_journal() as journal:
        lines = journal.runs() if journal else ()
    if as_json:
        told = {"version": 1, "runs": lines}
        show(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n")
        return
    width, colour = layout(sys.stdout)
    show(render_runs(lines, now=time.time(), width=width, colour=colour))
