"""``rocsteady runs``: every run of this project, with its step, rate and end."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import msgspec

from rocsteady.cli.screen import layout, show
from rocsteady.journal.journal import Journal
from rocsteady.journal.place import find_place
from rocsteady.report.runs import render_runs


@click.command("runs")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(*, as_json: bool) -> None:
    """List the runs of this project, newest first."""
    journal = Journal(find_place(Path.cwd()))
    try:
        lines = journal.runs()
    finally:
        journal.close()
    if as_json:
        told = {"version": 1, "runs": lines}
        show(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n")
        return
    width, colour = layout(sys.stdout)
    show(render_runs(lines, now=time.time(), width=width, colour=colour))
