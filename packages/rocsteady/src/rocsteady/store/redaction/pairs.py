"""Values that a name gives away: ``password=...``, ``"token": "..."``, ``--api-key ...``, YAML.

Two rules. What joins a value to a telling name is in ``patterns.toml``; such a value is hidden
whatever it looks like. Near such a name, in its line and the lines right below it, words that look
drawn by chance are hidden too: that covers sentences, tables, elements and records. Every look
around a name is bounded, so that the time is linear in the length of the text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

from rocsteady.store.redaction import patterns
from rocsteady.store.redaction.patterns import (
    TELLING,
    Kind,
    harmless,
    is_password,
    is_random,
    kind_of,
)

StandIn = Callable[[Kind, str], str]

_LOWER = {ord(mark): mark.lower() for mark in string.ascii_uppercase}  # no length changes
_NAME = re.compile(
    r"(?:pass|pwd|pw|token|secret|key|sig|auth|cred|cookie|bearer|hmac|dsn|sas|pat|psk|otp|jwt|sess"
    r"|webhook|user|login|logname|host|node|addr|endpoint|fqdn|serial|unique|s/n|hive)"
    r"(?=(?P<rest>(?:[a-z0-9_.]|-(?!>)){0,40}))(?P=rest)(?P<second> (?:id|number|no|num)\b)?"
)
_TWO_WORDS = re.compile(r"(?<![A-Za-z])([A-Za-z]{2,20}) $")  # "access token"
_STAMP = re.compile(r"(?:\[[\w-]{1,16}\]: |[0-9T:.Z-]{8,30} )?")  # of a rank, or of the time
_CLOSERS, _PAIRS = ")]}>.,;:|\\", {")": "(", "]": "[", "}": "{", ">": "<"}
_LINE = re.compile(r"\S[^\n\r]*")
_CELLS = re.compile("[,;\t|\u2502\u2503\u2506\u2551]")  # between the cells of a row
_RULE = frozenset("-=:+ ")  # below the names of columns
_LONGEST_NAME, _INDENT, _ENOUGH, _FAR, _NEAR = 64, 40, 96, 200, 60  # characters
_LONGEST_LIST, _LINES_BELOW, _ROWS = 2000, 3, 50
_join, _form = partial(patterns.pattern, "joins"), partial(patterns.pattern, "values")


class _Name(NamedTuple):
    """A telling name, and where its value begins."""

    kind: Kind
    text: str
    start: int
    end: int
    at: int = -1  # -1: nothing joins a value to it
    element: bool = False


def replace_named(text: str, stand_in: StandIn) -> str:
    """Replace what a telling name gives away. The number of lines stays."""
    done: list[str] = []
    copied = 0
    for first, last, kind in sorted(_spans(text), key=lambda span: span[:2]):
        if first >= copied:
            hidden = _LINE.sub(lambda line: stand_in(kind, line[0]), text[first:last])  # noqa: B023 - used here
            done += (text[copied:first], hidden)
        copied = max(copied, last)  # a value may lie in another one
    return "".join((*done, text[copied:]))


def _spans(text: str) -> Iterator[tuple[int, int, Kind]]:
    """Find what names give away, in the order of the names."""
    at = 0
    lowered = text.translate(_LOWER)  # ten times as fast as a pattern that ignores case
    while found := _NAME.search(lowered, at):
        at = found.end("rest")
        name = _name(text, found)
        if name is None:
            continue
        name = _joined(text, lowered, name)
        if name.at >= 0:
            first, last = _value(text, name, name.at + _ENOUGH)
            if text.startswith(patterns.REDACTED, first):
                at = first + len(patterns.REDACTED)  # more may follow in the line
                continue
            if last > first and not harmless(name.kind, name.text, text[first:last]):
                first, last = _value(text, name, len(text))
                at = max(at, last - _LONGEST_NAME)  # it may end with another name
                yield first, last, name.kind
                continue
        for first, last in _near(text, name) if name.kind in TELLING else ():
            yield first, last, Kind.SECRET


def _name(text: str, found: re.Match[str]) -> _Name | None:
    """Return the whole name around a word that was found, if it tells of anything."""
    start, end = found.start(), found.end("rest")
    while start > max(0, found.start() - _LONGEST_NAME) and (
        text[start - 1].isalnum() or text[start - 1] in "_-."
    ):
        start -= 1
    name, second = text[start:end], found["second"] or ""
    kind = kind_of(name + second)
    if kind is None and name.endswith("s"):
        kind = kind_of(name[:-1])
        kind = kind if kind in TELLING else None
    if kind is None and text[end : end + 1] == "]":  # the table of TOML [auth.x]
        kind = next((k for part in name.split(".") if (k := kind_of(f"{part}_value"))), None)
    if kind is Kind.LIKELY:
        before = _TWO_WORDS.search(text, max(0, start - _LONGEST_NAME), start)
        kind = (kind_of(f"{before[1]}_{name}") or kind) if before else kind
    return _Name(kind, name, start, end + len(second)) if kind else None


def _joined(text: str, lowered: str, name: _Name) -> _Name:
    """Return the name with the place of its value, if something joins the two."""
    kind, start, end, option = name.kind, name.start, name.end, name.text.startswith("-")
    if found := _join("sign").match(lowered, end):
        return name._replace(at=found.end()) if _is_sure(text, name, found) else name
    if kind in TELLING and (found := _join("record").match(lowered, end)):
        value = re.split("[\"'<]", text[found.end() : found.end() + _ENOUGH].lstrip("\"'"))[0]
        plain = kind is Kind.LIKELY and name.text.isalpha() and name.text.islower()
        if not plain or is_random(value, least=12, digits=1):  # "key": of a table, too
            return name._replace(at=found.end(), element=found["element"] is not None)
    if kind is Kind.SECRET and (found := _join("surely").match(text, end)):
        return name._replace(at=found.end())
    if found := _join("listed").match(text, end):
        call = kind is Kind.SECRET and text[max(0, start - 3) : start - 1].rstrip("b")[-1:] == "("
        return name._replace(at=found.end()) if call or option else name
    if found := _join("space").match(text, end):
        following = text[found.end() : found.end() + 3].lstrip("\"'")
        before = _join("sets").search(text, max(0, start - 16), start)
        sets = before and (kind is Kind.SECRET or name.text.isupper())
        numbered = kind is Kind.SERIAL and following[:1].isdigit()  # "unique_id 123", of the kernel
        if (option and following[:1] != "-") or ("\n" not in found[0] and (sets or numbered)):
            return name._replace(at=found.end())
    return name


def _is_sure(text: str, name: _Name, found: re.Match[str]) -> bool:  # noqa: PLR0911 - one a rule
    """Return whether what follows a sign is the value of a name."""
    at, secret, listed = found.end(), name.kind is Kind.SECRET, _form("list")
    several = text[at : at + 1] in ("[", "{") or listed.match(text, at)
    plural = name.text.endswith("s") and kind_of(name.text) is None
    if plural and name.text[0] != "-" and not (several and secret):
        return False  # "tokens: 12"
    if not secret and _join("paired").match(text, at):
        return False  # {"key": "TOKEN", "value": ...}
    if found["escaped"] and "=" not in found["sign"]:  # the next line of a text in a line
        return found["escaped"][-1] in " \t" or text.startswith(('"', "'"), at)
    if found["aside"] and found["aside"][0] != "[" and not secret and "=" not in found["sign"]:
        return False  # "key (str): ..." explains what a key is
    if text[at : at + 1] not in ("\r", "\n") or listed.match(text, at):
        return True
    below = _form("below").match(text, at)
    if not secret or below is None:
        return False
    # As in YAML, the next line is further in, and no pair; below a sentence it is one word.
    begin = text.rfind("\n", max(0, name.start - _INDENT), name.start) + 1
    lead = _STAMP.sub("", text[begin or max(0, name.start - _INDENT) : name.start], count=1)
    if lead.strip(" \t-\"'") in ("", "export", "set"):
        return len(below[1]) > len(lead) - len(lead.lstrip(" \t"))
    return " " not in below[2].rstrip()


def _value(text: str, name: _Name, until: int) -> tuple[int, int]:
    """Find where the value begins, and where it ends if that is before ``until``."""
    until = min(until, len(text))
    first, last = _one_value(text, name, until)
    several = name.text[0] == "-" and name.text.endswith("s")  # it takes several
    more = _form("more").match(text, last, until) if several else None
    return first, more.end() if more else last


def _one_value(text: str, name: _Name, until: int) -> tuple[int, int]:
    at = name.at
    if tags := _form("tags").match(text, at):
        return at, _one_value(text, name._replace(at=tags.end()), until)[1]
    if quote := _form("quote").match(text, at):
        first = quote.end(1)
        last = found.end() if (found := _quoted(quote[1]).match(text, first, until)) else first
        while part := _form("part").match(text, last, until):
            last = part.end()
        return first, last
    for key in ("block", "list", "below"):
        if lines := _form(key).match(text, at, until):
            return lines.span(lines.lastindex or 0)
    if name.kind in TELLING and (
        found := _form("bracket").match(text, at, min(until, at + _LONGEST_LIST))
    ):
        return found.span()
    whole = name.text.lower().endswith(("authorization", "cookie"))
    if name.element or whole or (name.kind is Kind.SECRET and text[at - 2 : at] in (": ", "= ")):
        digest = whole and text[at : at + 6].lower() == "digest"
        key = "to_tag" if name.element else "to_end" if digest else "to_quote"
        found = _form(key).match(text, at, until)
        return at, at + len(found[0].rstrip()) if found else at
    found = _form("word").match(text, at, until)
    end, opened = (found.end(), set(found[0])) if found else (at, set())
    for mark in reversed(text[max(at, end - 8) : end]):
        if mark not in _CLOSERS or _PAIRS.get(mark) in opened:
            break
        end -= 1
    return at, end


@cache
def _quoted(quote: str) -> re.Pattern[str]:
    """Return a pattern for what a quotation mark begins, to the same mark or the line's end."""
    return re.compile(rf"(?:(?!{re.escape(quote)})(?:\\.|[^\n]))*")


def _near(text: str, name: _Name) -> Iterator[tuple[int, int]]:
    """Find words near a name that look drawn: before it, in its line, and in the lines below."""
    secret, start, end = name.kind is Kind.SECRET, name.start, name.end
    if secret and _join("label").search(text, max(0, start - 24), start):
        yield from _drawn(text, max(0, start - _FAR), start, 12, 1)
    rest, *below = text[end : end + _FAR * (_LINES_BELOW + 1)].split("\n")[: _LINES_BELOW + 1]
    for word in _join("word").finditer(text, end, end + min(_NEAR, len(rest)) if secret else 0):
        if is_password(word[0].rstrip(".:!?=")):
            yield word.span()
    yield from _drawn(text, end, end + len(rest[:_FAR]), *((12, 1) if secret else (16, 3)))
    before = re.split(r"[\n/()\[\]{}\"']", text[max(0, start - _FAR) : start])[-1]
    header = bool(_join("header").fullmatch(before + name.text + rest))
    at = end + len(rest) + 1
    if secret and header and not (_CELLS.split(before)[-1] + _CELLS.split(rest)[0]).strip():
        yield from _column(
            text, at, len(_CELLS.findall(before)), len(_CELLS.findall(before + rest))
        )
    for line in below if secret or header else ():
        if secret and _join("word").fullmatch(line.strip()) and is_password(line.strip()):
            yield at, at + len(line)
        yield from _drawn(text, at, at + len(line), 12, 1)
        at += len(line) + 1


def _drawn(text: str, at: int, stop: int, least: int, digits: int) -> Iterator[tuple[int, int]]:
    for word in _join("word").finditer(text, at, stop):
        if is_random(word[0].rstrip(".:!?="), least=least, digits=digits):
            yield word.span()


def _column(text: str, at: int, index: int, marks: int) -> Iterator[tuple[int, int]]:
    """Find the cells below the name of a column, whatever they look like."""
    for line in text[at : at + _ROWS * _FAR].split("\n")[:_ROWS] if marks else ():
        cells = _CELLS.split(line)
        if len(cells) != marks + 1:
            return
        plain = cells[index].strip(" \"'\r")
        if not (set(plain) <= _RULE or harmless(Kind.SECRET, "", plain)):
            first = at + len("".join(cells[:index])) + index + cells[index].index(plain)
            yield first, first + len(plain)
        at += len(line) + 1
