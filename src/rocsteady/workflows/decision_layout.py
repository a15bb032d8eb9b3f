"""The decision page of a plan, as HTML or Markdown, from the same sections."""

from __future__ import annotations

from rocsteady.model import Value
from rocsteady.page.markup import Markup, tag
from rocsteady.page.page_elements import POLICY, pairs, table, whole_page
from rocsteady.printable import cell, printable


class PageSection(Value, frozen=True, kw_only=True):
    """A part of the page: a list, and a table below it."""

    title: str
    items: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    addresses: bool = False  # the items are our own sources, which can be followed


class DecisionPage(Value, frozen=True, kw_only=True):
    """All that the page says."""

    title: str
    summary: str
    typed: str  # the command that does it; "": none does
    facts: tuple[tuple[str, str], ...]
    sections: tuple[PageSection, ...]


def decision_html(page: DecisionPage) -> str:
    """Lay the page out as one file that needs no network and runs no script."""
    typed = tag("p", tag("code", page.typed)) if page.typed else ""
    top = tag("p", page.summary, class_="summary")
    header = tag("header", tag("h1", page.title), top, typed, pairs(page.facts))
    main = tag("main", header, *map(_section, page.sections))
    return whole_page(f"{page.title} (rocsteady)", tag("body", main), POLICY.format("'none'"))


def _section(section: PageSection) -> Markup:
    items = tag("ul", *(tag("li", item) for item in section.items)) if section.items else ""
    rows = table(section.title, section.heads, section.rows) if section.rows else ""
    return tag("section", tag("h2", section.title), items, rows)


def decision_markdown(page: DecisionPage) -> str:
    """Write the page as Markdown."""
    lines = [f"# {_cell(page.title)}", "", f"**{_cell(page.summary)}**", ""]
    lines += [f"    {printable(page.typed)}", ""] if page.typed else []
    lines += [f"- {name}: {_cell(value)}" for name, value in page.facts if value]
    for section in page.sections:
        lines += [
            "",
            f"## {section.title}",
            "",
            *(f"- {_item(item, section)}" for item in section.items),
        ]
        if section.rows:
            lines += [""] * bool(section.items)
            lines += [f"| {' | '.join(section.heads)} |", "|---" * len(section.heads) + "|"]
            lines += [f"| {' | '.join(map(_cell, row))} |" for row in section.rows]
    return "\n".join(lines) + "\n"


def _item(text: str, section: PageSection) -> str:
    return printable(text) if section.addresses else _cell(text)


def _cell(text: str) -> str:
    """Keep text of others on its line, and without effect: no column, no tag, no image."""
    return cell(printable(" ".join(text.split())).replace("<", "&lt;"))
