"""HTML and SVG by construction: whatever is not markup already is text, and is escaped."""

from __future__ import annotations

from html import escape

from rocsteady.printable import printable

VOID = frozenset({"meta", "path", "line", "rect", "circle", "polyline", "polygon", "br"})


class Markup(str):
    """Text that is HTML. Only ``tag`` and ``raw`` make it."""

    __slots__ = ()


def raw(trusted: str) -> Markup:
    """Take text of our own as HTML."""
    return Markup(trusted)


def text(content: object) -> Markup:
    """Make text safe to show, with its control characters written out."""
    return content if isinstance(content, Markup) else Markup(escape(printable(str(content))))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Make an element. In an attribute ``class_`` is class, ``_`` is -; None leaves it out."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        parts.append(label if value is True else f'{label}="{escape(printable(str(value)))}"')
    head = " ".join(parts)
    if name in VOID and not children:
        return Markup(f"<{head}/>")
    inner = "".join(text(child) for child in children if child is not None)
    return Markup(f"<{head}>{inner}</{name}>")
