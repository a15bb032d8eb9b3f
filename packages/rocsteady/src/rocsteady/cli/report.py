"""``rocsteady report``: what was asked, what happened, why, what was done."""

from __future__ import annotations

import sys
import time
import webbrowser
from pathlib import Path

import click
from rocsteady_train.untrusted_file import read_head

from rocsteady.cli.project import find_run, nothing_run, open_journal, write_asked
from rocsteady.report.pages import render_markdown, render_page
from rocsteady.report.read_run import bundle, read_story
from rocsteady.report.story import Story, story_document
from rocsteady.screens.runs import render_summary
from rocsteady.screens.screen import PLAIN_WIDTH, Page, json_text, page_here, show, show_json, tell
from rocsteady.store.location import run_folder

FORMATS = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text", ".json": "json"}


@click.command("report")
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE, in the form of its extension: .html, .md, .txt or .json.",
)
@click.option("--force", is_flag=True, help="Overwrite the --output file.")
@click.option("--open", "opens", is_flag=True, help="Write the page and open it in a browser.")
@click.option(
    "--bundle", "bundled", is_flag=True, help="Write a zip of the page and the redacted evidence."
)
def command(  # noqa: PLR0913 - one argument an option
    *,
    name: str | None,
    as_json: bool,
    output: Path | None,
    force: bool,
    opens: bool,
    bundled: bool,
) -> None:
    """Explain what happened in RUN: why it failed, what was done about it, and what it cost.

    Every form is redacted and can be sent to others: a summary on a terminal, Markdown in a pipe,
    a page that needs no network. Without RUN: the last run of this project.

    Exit code: 0, or 2 for incorrect usage.
    """
    suffixes = (".zip",) if bundled else (".html", ".htm") if opens else tuple(FORMATS)
    if output and (as_json or output.suffix.lower() not in suffixes):
        what = "--json goes to stdout" if as_json else f"name it {' or '.join(suffixes)}"
        raise click.UsageError(f"--output {output}: {what}")
    _refuse_taken(output, force=force)
    with open_journal(name) as journal:
        if journal is None:
            raise nothing_run(name)
        line = find_run(journal, name)
        story = read_story(journal, line, now=time.time())
        if bundled:
            target = output or _ours(Path(f"rocsteady-{line.run.name}.zip"), force=force)
            write_asked("--output", target, bundle(journal, line, render_page(story)))
            return
        target = output or run_folder(journal.place.folder, line.run.name) / "report.html"
    if opens:
        write_asked("--output", target, render_page(story).encode())
        if not webbrowser.open(target.absolute().as_uri()):
            tell(f"rocsteady: found no browser; the page is {target.absolute().as_uri()}")
    elif output is not None:
        write_asked(
            "--output",
            output,
            _text(story, FORMATS[output.suffix.lower()], Page(PLAIN_WIDTH, colour=False)).encode(),
        )
    elif as_json:
        show_json(story_document(story))
    else:
        show(_text(story, "text" if sys.stdout.isatty() else "markdown", page_here()))


def _text(story: Story, wanted: str, page: Page) -> str:
    match wanted:
        case "html":
            return render_page(story)
        case "json":
            return json_text(story_document(story))
        case "text":
            return render_summary(story, page=page)
        case _:
            return render_markdown(story)


def _refuse_taken(output: Path | None, *, force: bool) -> None:
    if output is not None and output.exists():
        if not output.is_file():
            raise click.UsageError(f"--output {output}: not a regular file")
        if not force:
            raise click.UsageError(f"--output {output}: already exists; use --force to overwrite")


def _ours(target: Path, *, force: bool) -> Path:
    """Refuse to overwrite a file that is not an earlier bundle."""
    if target.exists() and not force:
        head = read_head(target, 4096, follow=False) if target.is_file() else b""
        if not (head.startswith(b"PK") and b"report.html" in head):
            raise click.UsageError(f"{target}: already exists; use --force to overwrite")
    return target
