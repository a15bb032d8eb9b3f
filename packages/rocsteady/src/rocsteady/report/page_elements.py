"""What every page has: its head, tables, and names with their values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from rocsteady.report.markup import Markup, raw, tag

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src {}; base-uri 'none';"
    " form-action 'none'"
)
MOST_ROWS = 500  # of a table; a longer one says what it leaves out
MOST_SIDE_BY_SIDE = 3  # columns that fit a narrow screen


def whole_page(title: str, body: Markup, policy: str, *, reload_after: int | None = None) -> str:
    """Put a head before a body; the policy says what the page may do."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", http_equiv="refresh", content=reload_after) if reload_after else None,
        tag("title", title),
        tag("style", raw(resource("page.css"))),
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def table(label: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Markup:
    """Lay out a table; of a long one, the last rows. On a narrow screen a wide one is stacked."""
    shown = rows[-MOST_ROWS:]
    left_out = len(rows) - len(shown)
    cells = (zip(heads, row, strict=True) for row in shown)
    # The roles say to a screen reader that it is a table even where it is stacked.
    content = tag(
        "table",
        tag("thead", tag("tr", *(_head(head) for head in heads), role="row"), role="rowgroup"),
        tag(
            "tbody",
            *(tag("tr", *(_cell(*pair) for pair in row), role="row") for row in cells),
            role="rowgroup",
        ),
        role="table",
    )
    note = tag("p", f"The first {left_out:,} rows are left out.") if left_out else ""
    kind = "scroll stack" if len(heads) > MOST_SIDE_BY_SIDE else "scroll"
    return tag("div", content, note, class_=kind, tabindex="0", role="region", aria_label=label)


def _head(name: str) -> Markup:
    return tag("th", name, scope="col", role="columnheader")


def _cell(head: str, content: str) -> Markup:
    return tag("td", content, role="cell", data_head=head)


def pairs(pairs: Sequence[tuple[str, object]]) -> Markup:
    """Lay out names and values; one without a value is left out."""
    shown = ((tag("dt", name), tag("dd", value)) for name, value in pairs if value)
    return tag("dl", *(each for pair in shown for each in pair))


def folded(title: str, content: str) -> Markup:
    """Lay out a text that is shown when its title is chosen."""
    return tag("details", tag("summary", title), tag("pre", content, tabindex="0"))


@cache
def resource(name: str) -> str:
    """Return a file of this folder."""
    return files("rocsteady.report").joinpath(name).read_text(encoding="utf-8")
