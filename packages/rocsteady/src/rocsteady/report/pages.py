"""Pages from templates: HTML, and Markdown.

A page is one file that opens from disk, asks no other host, prints, and works without a script.

Everything that a template of HTML fills in is text: it is escaped, and its control characters are
written out. Only the style sheet, the script and what macros return is markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime, tzinfo
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from rocsteady.printable import cell, code, inert, printable
from rocsteady.report.plot import LinePlot, line_plot, percent, share_bar, timeline
from rocsteady.report.story import (
    ATTEMPT_COLUMNS,
    TRIED_COLUMNS,
    UNCONFIRMED,
    Moment,
    Story,
    torch_of,
)
from rocsteady.wording import DAYS, MONTHS, duration, plural, stamp

if TYPE_CHECKING:
    import jinja2

ROWS = 500  # of a table, at most; a longer one says what it leaves out


def render_page(story: Story, *, zone: tzinfo | None = None) -> str:
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
        phases=phase_shares(story.phases),
        shares=share_bar(story.costs.shares),
        attempt_columns=ATTEMPT_COLUMNS,
        tried_columns=TRIED_COLUMNS,
        events=[(Moment(at=message.at), message.text) for message in story.record.messages],
        zone=zone,
        script=_file("page.js"),
    )


def render_markdown(story: Story) -> str:
    return render_template(
        "run.md.j2",
        story=story,
        run=story.record.run,
        torch=torch_of(story.machine.machine) if story.machine else "",
        attempt_columns=ATTEMPT_COLUMNS,
        tried_columns=TRIED_COLUMNS,
        phases=phase_shares(story.phases),
    )


def phase_shares(phases: Sequence[tuple[str, float]]) -> tuple[tuple[str, str], ...]:
    """Return what the training itself did, in percent; the start of a process is none of it."""
    parts = [(name, seconds) for name, seconds in phases if name != "starting"]
    whole = sum(seconds for _, seconds in parts)
    return tuple((name, percent(seconds / whole)) for name, seconds in parts if whole)


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
        finalize=lambda value: printable(value) if type(value) is str else value,  # not markup
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    own = (stamp, duration, plural, inert, cell, code)
    environment.filters.update({it.__name__: it for it in own})
    environment.filters.update(
        local=_local,
        sentence=lambda text: f"{text[:1].upper()}{text[1:].rstrip('.')}.",
        quoted=lambda text: "\n".join(f"    {line}" for line in text.rstrip().splitlines()),
    )
    environment.globals.update(rows_shown=ROWS, unconfirmed=UNCONFIRMED)
    environment.tests["moment"] = lambda value: isinstance(value, Moment)
    return environment


def _local(at: float | None, zone: tzinfo | None = None) -> object:
    """Write a moment by the clock of this machine, with UTC for whoever points at it."""
    import markupsafe  # noqa: PLC0415 - only a page needs it

    utc = stamp(at)
    if at is None or utc == "-":
        return utc
    local = datetime.fromtimestamp(at, tz=zone).astimezone(zone)
    day = f"{DAYS[local.weekday()]} {local.day} {MONTHS[local.month - 1]} {local:%H:%M:%S}"
    return markupsafe.Markup('<time datetime="{}" title="{}">{}</time>').format(
        local.isoformat(timespec="seconds"), utc, day
    )


@cache
def _file(name: str) -> str:
    return files("rocsteady.report").joinpath("templates", name).read_text(encoding="utf-8")
