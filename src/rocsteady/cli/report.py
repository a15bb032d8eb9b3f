"""``rocsteady report``: what was asked, what happened, why, what was done."""

from __future__ import annotations

import platform
from pathlib import Path

import click
import msgspec

from rocsteady.cli.screen import show
from rocsteady.journal.journal import Journal
from rocsteady.journal.place import find_place
from rocsteady.redaction.redactor import Redactor
from rocsteady.report.story import render_story


@click.command("report")
@click.argument("name", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(*, name: str, as_json: bool) -> None:
    """Write a page in Markdown, redacted, to read and to send."""
    journal = Journal(find_place(Path.cwd()))
    try:
        story = journal.story(name)
    finally:
        journal.close()
    home = str(Path.home())
    redactor = Redactor(
        homes=[home],
        users=[Path(home).name],
        hosts=[platform.node(), platform.node().partition(".")[0]],
    )
    if as_json:
        show(
            redactor.text(msgspec.json.format(msgspec.json.encode(story), indent=2).decode()) + "\n"
        )
    else:
        show(redactor.text(render_story(story)))
