"""What every page has: its head, tables, and names with their values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from rocsteady.page.markup import Markup, raw, tag

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src {}; base-uri 'none';"
    " form-action 'none'"
)
MOST_ROWS = 500  # of a table; a longer one says what it leaves out


def whole_page(title: str, body: Markup, policy: str) -> str:
    """Put a head before a body; the policy says what the page may do."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", raw(resource("page.css"))),
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def table(label: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Markup:
    """Lay out a table that can be scrolled; of a long one, the last rows."""
    shown = rows[-MOST_ROWS:]
    left_out = len(rows) - len(shown)
    content = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))),
        tag("tbody", *(tag("tr", *(tag("td", cell) for cell in row)) for row in shown)),
    )
    note = tag("p", f"The first {left_out:,} rows are left out.") if left_out else ""
    return tag("div", content, note, class_="scroll", tabindex="0", role="region", aria_label=label)


def pairs(pairs: Sequence[tuple[str, object]]) -> Markup:
    """Lay out names and values; one without a value is left out."""
    shown = ((tag("dt", name), tag("dd", value)) for name, value in pairs if value)
    return tag("dl", *(each for pair in shown for each in pair))


@cache
def resource(name: str) -> str:
    """Return a file of this folder."""
    return files("rocsteady.page").joinpath(name).read_text(encoding="utf-8")
