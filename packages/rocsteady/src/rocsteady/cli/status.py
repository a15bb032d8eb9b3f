"""``rocsteady status``: every run of this project, with its step, rate and end."""

from __future__ import annotations

import time
from itertools import chain

import click
from msgspec.structs import replace

from rocsteady.cli.project import newest, open_journals
from rocsteady.screens.runs import render_runs
from rocsteady.screens.screen import page_here, show, show_json
from rocsteady.store.forecast import lines_ahead
from rocsteady.store.redaction import hide_secrets


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(*, as_json: bool) -> None:
    """List the runs of this project, newest first, with their ETA and deadline."""
    now = time.time()
    with open_journals() as journals:
        each = [lines_ahead(one.runs(), one.story, now=now) for one in journals]
    lines = tuple(sorted(chain(*each), key=newest, reverse=True))
    if as_json:
        show_json({"version": 1, "runs": lines})
        return
    shown = [replace(it, run=replace(it.run, name=hide_secrets(it.run.name))) for it in lines]
    show(render_runs(shown, now=now, page=page_here()))
