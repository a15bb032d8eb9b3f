"""``rocsteady report``: what was asked, what happened, why, what was done."""

from __future__ import annotations

import time

import click
import msgspec

from rocsteady.cli.project_journal import find_run, kept_journal, nothing_run
from rocsteady.cli.screen import show, show_json
from rocsteady.forecast.runs import story_ahead
from rocsteady.journal.values import RunStory
from rocsteady.printable import printable
from rocsteady.redaction.machine_names import redactor_here
from rocsteady.report.story import render_story


@click.command("report")
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(*, name: str | None, as_json: bool) -> None:
    """Explain what happened in RUN, on a redacted page in Markdown that can be sent.

    Without RUN: the last run of this project. Exit code: 0, or 2 for incorrect usage.
    """
    with kept_journal() as journal:
        if journal is None:
            raise nothing_run(name)
        line = find_run(journal, name)
        story = story_ahead(journal.story(line.run.name), journal.runs(), now=time.time())
    told = redactor_here().value(msgspec.to_builtins(story))
    if as_json:
        show_json(told)
    else:
        show(printable(render_story(msgspec.convert(told, RunStory))))
