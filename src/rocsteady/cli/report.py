"""``rocsteady report``: what was asked, what happened, why, what was done."""

from __future__ import annotations

import time

import click
import msgspec

from rocsteady.cli.kept import kept_journal
from rocsteady.cli.redacted import redactor_here
from rocsteady.cli.screen import show, show_json
from rocsteady.errors import RocsteadyError
from rocsteady.journal.values import RunStory
from rocsteady.printable import printable
from rocsteady.report.story import render_story
from rocsteady.supervisor.ahead import story_ahead


@click.command("report")
@click.argument("name", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(*, name: str, as_json: bool) -> None:
    """Write a page in Markdown, redacted, to read and to send."""
    with kept_journal() as journal:
        if journal is None:
            raise RocsteadyError(f"there is no run {name!r}: nothing was run here yet")
        story = story_ahead(journal.story(name), journal.runs(), now=time.time())
    told = redactor_here().value(msgspec.to_builtins(story))
    if as_json:
        show_json(told)
    else:
        show(printable(render_story(msgspec.convert(told, RunStory))))
