"""``rocsteady knowledge``: of when it is, how much there is, and a newer one from a signed file."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path

import click

from rocsteady.cli.command_group import CommandGroup
from rocsteady.doctor.diagnosis import knowledge_in_use
from rocsteady.doctor.knowledge_age import knowledge_state
from rocsteady.knowledge.store import places
from rocsteady.report.knowledge import KnowledgeCounts, render_counts, render_difference
from rocsteady.terminal.screen import layout, show, show_json, tell
from rocsteady.workflows.knowledge_update import (
    author_complaints,
    count_entries,
    difference,
    fetch_bundle,
    install,
)

IN_ORDER, COMPLAINTS = 0, 1
from_option = click.option(
    "--from", "source", required=True, metavar="SOURCE", help="A file, a folder or a URL."
)


@click.group("knowledge", cls=CommandGroup, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Show how old the knowledge base is and how many entries it has.

    Nothing is downloaded unless you run `update` or `diff` with a source.

    Exit code: 0, or 2 for incorrect usage.
    """
    if ctx.invoked_subcommand is not None:
        return
    used = knowledge_in_use()
    today = datetime.now(tz=timezone.utc).date()
    state = knowledge_state(
        None, used.knowledge, used.edition, today=today, complaint=used.complaint
    )
    counts = KnowledgeCounts(
        state=state,
        origin="bundle" if used.installed else "package",
        own=used.own,
        entries=count_entries(used.knowledge),
    )
    if as_json:
        show_json(counts)
    else:
        width, colour = layout(sys.stdout)
        show(render_counts(counts, width=width, colour=colour))


@command.command("update")
@from_option
def update(*, source: str) -> None:
    """Install a newer knowledge base from a signed bundle.

    A bundle that is damaged, older, or not signed by an accepted key is rejected, and the current
    knowledge base is kept. A bundle holds only data; nothing in it is executed.

    Exit code: 0 installed, 1 rejected or not readable, 2 incorrect usage.
    """
    content = fetch_bundle(source, not_before=knowledge_in_use().edition.date)
    path = install(content, places())
    tell(f"Installed the knowledge base dated {content.edition.date} ({path}).")


@command.command("diff")
@from_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def diff(*, source: str, as_json: bool) -> None:
    """Show what a bundle would change, without installing it.

    Exit code: 0 compared, 1 rejected or not readable, 2 incorrect usage.
    """
    found = difference(fetch_bundle(source, not_before=""))
    if as_json:
        show_json(found)
    else:
        width, colour = layout(sys.stdout)
        show(render_difference(found, width=width, colour=colour))


@command.command("check")
@click.argument(
    "folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.pass_context
def check(ctx: click.Context, *, folder: Path | None) -> None:
    """Check knowledge entries for mistakes.

    Without FOLDER, checks the current knowledge base with your own entries. Reports entries without
    a source or date, references to missing entries, conditions that can never be true, and
    duplicates.

    Exit code: 0 no problems, 1 problems found, 2 incorrect usage.
    """
    found = tuple(author_complaints(folder))
    for line in found:
        show(f"{line}\n")
    if not found:
        show("No problems found.\n")
    ctx.exit(COMPLAINTS if found else IN_ORDER)
