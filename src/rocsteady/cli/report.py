"""``rocsteady report``: what was asked, what happened, why, what was done."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import click
import msgspec

from rocsteady.cli.kept import kept_journal
from rocsteady.cli.screen import show
from rocsteady.errors import RocsteadyError
from rocsteady.redaction.redactor import Redactor
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
    redactor = _redactor()
    if as_json:
        told = _redacted(msgspec.to_builtins(story), redactor)
        show(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n")
    else:
        show(redactor.text(render_story(story)))


def _redactor() -> Redactor:
    home = Path.home()
    names = ("USER", "LOGNAME", "USERNAME", "SUDO_USER")
    return Redactor(
        homes=[str(home), str(home.resolve())],
        users=[home.name, *(os.environ.get(name, "") for name in names)],
        hosts=[platform.node(), platform.node().partition(".")[0]],
    )


def _redacted(value: object, redactor: Redactor) -> object:
    """Redact every text by itself: what is found can then not reach over a quotation mark."""
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, list | tuple):
        return [_redacted(item, redactor) for item in value]
    if isinstance(value, dict):
        return {key: _redacted(item, redactor) for key, item in value.items()}
    return value
