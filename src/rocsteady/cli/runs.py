"""``rocsteady runs``: every run of this project, with its step, rate and end."""

from __future__ import annotations

import sys
import time
from itertools import chain

import click
import msgspec
from msgspec.structs import replace

from rocsteady.cli.project_journal import kept_journals, newest
from rocsteady.forecast.runs import lines_ahead
from rocsteady.journal.values import RunLine
from rocsteady.redaction.redactor import Secrets
from rocsteady.report.runs import render_runs
from rocsteady.terminal.screen import layout, show, show_json


@click.command("runs")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(*, as_json: bool) -> None:
    """List the runs of this project, newest first, with their ETA and deadline."""
    now = time.time()
    with kept_journals() as journals:
        each = [lines_ahead(one.runs(), one.story, now=now) for one in journals]
    lines = tuple(sorted(chain(*each), key=newest, reverse=True))
    if as_json:
        told = {"version": 1, "runs": lines}
        show_json(told)
        return
    shown = [replace(line, run=replace(line.run, command=(), job={}, folder="")) for line in lines]
    lines = msgspec.convert(Secrets().value(msgspec.to_builtins(shown)), tuple[RunLine, ...])
    width, colour = layout(sys.stdout)
    show(render_runs(lines, now=now, width=width, colour=colour))
