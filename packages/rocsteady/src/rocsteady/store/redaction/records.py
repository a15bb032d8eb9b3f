"""Values whose name is a value itself: ``{"name": "TOKEN", "value": "..."}``, elements of XML.

Every look around a value is bounded, so that the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rocsteady.store.redaction.key_values import value_at
from rocsteady.store.redaction.secret_names import Kind, harmless, kind_of, looks_random
from rocsteady.store.redaction.secret_patterns import REDACTED

StandIn = Callable[[Kind, str], str]

_VALUE = re.compile(r"(?<![\w.-])[\"']?[Vv](?:al(?:ue)?|ALUE)[\"']?[ \t]{0,4}[:=][ \t]{0,8}(?=\S)")
_LABEL = re.compile(
    r"(?<![\w.-])[\"']?(?:name|key|id|env|variable|type|field|alias|option|param\w{0,8})[\"']?"
    r"[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?P<name>[\w.-]{1,64})(?![\w.-])",
    re.IGNORECASE,
)
_BEGINS, _ENDS = re.compile(r"[{}(<]|- "), re.compile(r"[{})>]|- ")
_AROUND = 240  # characters of a record
_ELEMENT = re.compile(
    r"<(?P<tag>[\w:.-]{1,64})(?P<attributes>\s[^<>]{0,200})?>\s{0,40}(?:<!\[CDATA\[)?"
    r"(?P<value>[^<>\s][^<>]{0,400}?)(?:\]\]>)?\s{0,40}</"
)
_NAMES = frozenset({"name", "key", "td", "th", "dt", "b", "strong", "code"})  # of what follows
_GAP = re.compile(r"/?[\w:.-]{1,64}>[\s:=]{0,40}")  # between an element and the next


def replace_in_records(text: str, stand_in: StandIn) -> str:
    """Replace the values of records and elements with a telling name."""
    if "</" in text:
        text = _in_elements(text, stand_in)
    done: list[str] = []
    copied = 0
    for found in _VALUE.finditer(text) if "al" in text or "AL" in text else ():
        name = _name_around(text, found, copied)
        if name is None or found.start() < copied:
            continue
        first, last = value_at(text, name, found.end())
        kind = _kind(name, text[first:last])
        if kind:
            done += (text[copied:first], stand_in(kind, text[first:last]))
            copied = last
    return "".join((*done, text[copied:]))


def _name_around(text: str, found: re.Match[str], done: int) -> str | None:
    """Return the telling name of the record that a value is in; it may stand before or behind."""
    start = max(done, found.start() - _AROUND)
    for edge in _BEGINS.finditer(text, start, found.start()):
        start = edge.end()
    labels = [each["name"] for each in _LABEL.finditer(text, start, found.start())]
    if not labels:
        last = value_at(text, "", found.end())[1]
        edge_after = _ENDS.search(text, last, last + _AROUND)
        end = edge_after.start() if edge_after else last + _AROUND
        labels = [each["name"] for each in _LABEL.finditer(text, last, end)]
    return next((name for name in reversed(labels) if _telling(name)), None)


def _in_elements(text: str, stand_in: StandIn) -> str:
    done: list[str] = []
    copied = at = 0
    above = ""  # what the element before it says
    while found := _ELEMENT.search(text, at):
        if not _GAP.fullmatch(text, at, found.start()):
            above = ""
        tag, value = found["tag"].rpartition(":")[2], found["value"].rstrip()
        inside = [each["name"] for each in _LABEL.finditer(found["attributes"] or "")]
        kinds = (_kind(name, value) for name in (above, tag, *inside) if _telling(name))
        kind = next((each for each in kinds if each), None)
        if kind and REDACTED not in value:
            done += (text[copied : found.start("value")], stand_in(kind, value))
            copied = found.start("value") + len(value)
        above = value if tag.lower() in _NAMES else ""
        at = found.end()
    return "".join((*done, text[copied:]))


def _telling(name: str) -> bool:
    return kind_of(name) in (Kind.SECRET, Kind.LIKELY)


def _kind(name: str, value: str) -> Kind | None:
    """Return what a value is, unless it is plainly no secret."""
    kind = kind_of(name)
    if kind is None or not value or REDACTED in value or harmless(kind, name, value):
        return None
    plain = kind is Kind.LIKELY and name.isalpha() and name.islower()  # "key": of a table, too
    return None if plain and not looks_random(value, least=12, least_digits=1) else kind
