"""Pages from templates: HTML, and Markdown.

A page is one file that opens from disk, asks no other host, prints, and works without a script.

Everything that a template of HTML fills in is text: it is escaped, and its control characters are
written out. Only the style sheet, the script and what macros return is markup.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from rocsteady.printable import cell, code, inert, printable
from rocsteady.report.plot import LinePlot, line_plot, share_bar, timeline
from rocsteady.report.story import ATTEMPT_COLUMNS, UNCONFIRMED, Story, torch_of
from rocsteady.wording import duration, plural, stamp

if TYPE_CHECKING:
    import jinja2

ROWS = 500  # of a table, at most; a longer one says what it leaves out


def render_page(story: Story, *, reload_after: int | None = None) -> str:
    of_gpus: dict[str, list[LinePlot]] = {}
    own: list[LinePlot] = []
    for plot in story.plots:
        drawn = line_plot(plot, story)
        (of_gpus.setdefault(plot.gpu, []) if plot.gpu else own).append(drawn)
    return render_template(
        "run.html.j2",
        story=story,
        run=story.record.run,
        timeline=timeline(story),
        plots=own,
        of_gpus=of_gpus,
        phases=share_bar(story.phases),
        shares=share_bar(story.costs.shares),
        attempt_columns=ATTEMPT_COLUMNS,
        messages="\n".join(
            f"{stamp(message.at)}  {message.text}" for message in story.record.messages[-ROWS:]
        ),
        script=_file("page.js"),
        reload_after=reload_after,
    )


def render_markdown(story: Story) -> str:
    return render_template(
        "run.md.j2",
        story=story,
        run=story.record.run,
        torch=torch_of(story.machine.machine) if story.machine else "",
        attempt_columns=ATTEMPT_COLUMNS,
    )


def render_template(name: str, *, script: str = "", **values: object) -> str:
    """Fill in a template of a page; of scripts, only this very one may run."""
    import markupsafe  # noqa: PLC0415 - only a page needs it

    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template(name)
        .render(
            style=markupsafe.Markup(_file("page.css")),  # noqa: S704 - a file of our own
            script=markupsafe.Markup(script),  # noqa: S704 - the same
            script_hash=digest,
            **values,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 - takes long to import, and most commands write no page

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rocsteady.report"),
        autoescape=jinja2.select_autoescape(
            enabled_extensions=("html.j2",), disabled_extensions=("md.j2",), default=True
        ),
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        stamp=stamp,
        duration=duration,
        plural=plural,
        sentence=_sentence,
        inert=inert,
        cell=cell,
        code=code,
        quoted=_quoted,
    )
    environment.globals.update(rows_shown=ROWS, unconfirmed=UNCONFIRMED)
    return environment


def _visible(value: object) -> object:
    """Write out the control characters of a text; markup is already escaped."""
    return printable(value) if type(value) is str else value


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _quoted(text: str) -> str:
    """Show lines in Markdown as they are, whatever characters are in them."""
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())


@cache
def _file(name: str) -> str:
    return files("rocsteady.report").joinpath("templates", name).read_text(encoding="utf-8")
