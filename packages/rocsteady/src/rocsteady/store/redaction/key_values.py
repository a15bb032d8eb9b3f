"""Values that a name beside them marks: ``password=...``, ``"token": "..."``, ``--api-key ...``.

Every pattern starts with a literal word or a bounded class and never backtracks without a bound, so
that the time is linear in the length of the text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rocsteady.store.redaction.secret_names import (
    Kind,
    harmless,
    kind_of,
    like_a_password,
    looks_random,
)
from rocsteady.store.redaction.secret_patterns import REDACTED
from rocsteady.store.redaction.tables import BARS


class _Spot(NamedTuple):
    """A name, and where the value beside it begins."""

    kind: Kind
    name: str
    at: int
    line_start: bool
    sure: bool  # a sign stands between them; otherwise the value must look like a secret
    below: bool  # "=" ends the line, and the value is the next one


_LONGEST_NAME = 64
_INDENT = 40  # columns before a name that may be the first of its line
_ENOUGH = 96  # characters of a value that tell what it is
_MOST_CLOSERS = 8  # brackets and stops after a value that are not part of it

_NAMED = re.compile(
    r"""
    (?:pass|pwd|pw|token|secret|key|sig|auth|cred|cookie|bearer|hmac|apikey|dsn|sas|pat
      |psk|otp|jwt|sess|user|login|logname|host|node|addr|endpoint|fqdn|serial|unique|s/n|hive)
    (?=(?P<rest>(?:[a-z0-9_.]|-(?!>)){0,40}))(?P=rest)
    (?P<second>[ ](?:id|number|no|num)\b)?
    (?:
      (?:(?:\\{0,3}["'`]|\*{1,2}|</[a-z]{1,9}>|&(?:quot|apos|\#3[49]);)\]?)?
        (?P<aside>\[[^\]\n]{1,40}\]|[ ]?\([^()\n]{1,40}\)|[ ]for[ ]["']?[\w@.-]{1,40}["']?)?
        [ \t]{0,20}
        (?P<sign>
          :[ ]?(?:optional\[)?(?:str|string|text)\]?(?:[ ]\|[ ]none)?[ ]?=(?!=)|=>|:=
          |[=!?\\]?=|:(?![:/])
          |[.][.]{1,80}:?(?=[ \t])|%3[da]|&\#(?:61|58|x3[da]);|[\uff1d\uff1a])
        [ \t]{0,8}(?P<escaped>(?:\\{1,2}[nrt][ \t]{0,20}){0,3})
      # an argument of a parser, a value that pydantic refused
      | (?P<below>["'],[^\n)]{0,80}?default=|\n[ \t][^\n]{0,200}?input_value=)
      | (?P<listed>["'][ \t]{0,4},[ \t]{0,4}(?=b?["']))
      # said rather than assigned: "the password is ...", a row of a table
      | (?P<said>["'`*]{0,2}[ \t]{0,8}(?:[,;|\u2502\u2503\u2506\u2551]|[-~]>|<-|[\u2190\u2192\u21d2]
          |[-\u2013\u2014](?=[ \t]))[ \t]{0,8}
        |[ \t]{1,4}\([a-z ]{1,20}\):?[ \t]{1,4}
        |[ \t]{0,2}[(<](?=[^\s()<>]{6,200}[)>])|[ \t]{1,4}[\u201c\u201e\u00ab\u2018]
        |["'`*]{0,2}(?:[ \t]{1,8}(?:is|was|has|been|now|the|value|set|to|changed|from|defaults?
          |equals|contains|found|read|as|got|will|be|given|provided)(?=[: \t])){1,5}
          (?::[ \t]{0,8}|[ \t]{1,8})
        |[ \t]{1,4}\([^()\n]{1,20}\):?[ \t]{1,4})(?=[^\s=:])
      | (?P<space>[ \t]{0,8}\\?\r?\n(?:[-=~]{3,80}\r?\n)?[ \t]{0,20}(?:-[ ])?
        |(?:\\{1,2}[nrt][ \t]{0,20}){1,3}|[ \t]{1,60})(?=[^\s=:])
    )
    """,
    re.VERBOSE,
)
_LOWER = {ord(mark): mark.lower() for mark in string.ascii_uppercase}  # no length changes
_UNQUOTED = re.compile(
    r"""(?:[^\s&"'`,;]|[,;](?!\s|$|[\w-]{1,40}[=:]|["'])|["'`](?![\s,;:)\]}>&|]|$))+"""
)
_TO_END = re.compile(r"[^\n\r]+")
_TO_QUOTE_OR_END = re.compile(r"[^\n\r\"']+")
_BLOCK = re.compile(r"[|>][+-]?[0-9]?[ \t]*\n([ \t]+[^\n]*(?:\n[ \t]+[^\n]*)*)")  # of YAML
_LIST = re.compile(r"\r?\n([ \t]*- [^\n]*(?:\n[ \t]*- [^\n]*)*)")  # of YAML
_STAMP = r"(?:\[[\w-]{1,16}\]:[ ]|[0-9T:.Z-]{8,30}[ ])?"  # of a rank, or of the time
_BELOW = re.compile(  # the value of YAML on a line of its own
    rf"\r?\n{_STAMP}([ \t]{{1,40}})(?![\w.-]{{1,64}}[\"']?:(?:\s|$)|File |Traceback )"
    r"([^\s#-][^\n\r]{0,400})"
)
_STAMPED = re.compile(_STAMP)
_NEXT_LINE = re.compile(r"\r?\n[ \t]{0,20}(\S{6,200})[ \t]*(?=[\r\n]|$)")
_SETS = re.compile(r"\b(?:setx|setenv|set -\w{1,4}|ENV|export|configure set)\s+$")  # NAME VALUE
_CELL = re.compile(rf"[^\s{BARS}]{{6,200}}[ \t]{{0,40}}[{BARS}]")
_PAIRED = re.compile(
    r"[\"']?([\w.:-]{1,64})(?:[\"']?[ \t]{0,4},?\s[ \t]{0,40}[\"']?[Vv]al(?:ue)?[\"']?[:=]|[\"']>)"
)
_WORD_BEFORE = re.compile(r"(?<![A-Za-z])([A-Za-z]{2,20}) $")
_WORD = re.compile(r"[^\s\u201c\u201d\u00ab\u00bb\u2018\u2019\"'`,;()\[\]{}<>]{6,}")
_LONGEST_LIST = 2000
_MOST_NESTED = 8
_PREFIX = re.compile(r"[bBrRuUfF]{0,2}(?=(\\{0,3}[\"'`]|&(?:quot|apos|#3[49]);))")
_TAGS = re.compile(r"(?:[!&]\S{0,60}[ \t]+){1,2}(?=\S)")  # of YAML, before the value
# More values of one name: words after an option for several, parts of a text put together.
_NEXT_WORD = re.compile(r"[\"']?[ \t]+[\"']?(?!-)(<redacted>|[^\s\"'|&;<>)]+)")
_NEXT_ITEM = re.compile(r"[\"'][ \t]{0,4},[ \t]{0,4}[\"'](?!-)([^\"'\n]+)(?=[\"'])")
_NEXT_PART = re.compile(r"[\"'][ \t]{0,4}\+[ \t\n\\]{0,20}[bBrRuUfF]{0,2}[\"']([^\"'\n]+)(?=[\"'])")
_MOST_MORE = 64
_LINE = re.compile(r"\S[^\n\r]*")
_CLOSERS, _OPENERS = ")]}>.,;:|\\", {")": "(", "]": "[", "}": "{", ">": "<"}


def replace_named(text: str, stand_in: Callable[[Kind, str], str]) -> str:
    """Replace what stands beside a telling name. ``stand_in`` gets the kind and the value."""
    done: list[str] = []
    copied = at = 0
    lowered = text.translate(_LOWER)  # ten times as fast as a pattern that ignores case
    while found := _NAMED.search(lowered, at):
        at = found.end()
        name = _whole_name(text, found.start(), found.end("rest"))
        spot = _spot(text, found, name)
        if spot is None:
            at = found.end("rest")
            continue
        first, last = _value(text, spot, at + _ENOUGH)
        if text.startswith(REDACTED, first):
            at = last = first + len(REDACTED)  # more may follow in the line
        elif last > first >= copied and _counts(spot, text[first:last]):
            first, last = _value(text, spot, len(text))
            done += (text[copied:first], _by_line(spot.kind, text[first:last], stand_in))
            copied, at = last, max(at, last - _LONGEST_NAME)  # it may end with another name
        else:
            continue
        if last >= copied:
            for begin, end in _more(text, spot, last):
                done += (text[copied:begin], stand_in(Kind.SECRET, text[begin:end]))
                copied = at = end
    return "".join((*done, text[copied:]))


def _by_line(kind: Kind, value: str, stand_in: Callable[[Kind, str], str]) -> str:
    """Replace a value; the number of lines stays."""
    if "\n" not in value:
        return stand_in(kind, value)
    return _LINE.sub(lambda line: stand_in(kind, line[0]), value)


def _more(text: str, spot: _Spot, last: int) -> Iterator[tuple[int, int]]:
    """Find the further values of a name, from the end of the first one on."""
    option, login = spot.name.startswith("-"), spot.name.endswith("login")
    several = (_NEXT_ITEM, _NEXT_WORD) if option and (login or spot.name.endswith("s")) else ()
    for _ in range(_MOST_MORE):
        tried = (pattern.match(text, last) for pattern in (_NEXT_PART, *several))
        found = next((each for each in tried if each), None)
        if found is None or (login and not like_a_password(found[1])):
            return
        yield found.span(1)
        last = found.end(1)


def _spot(text: str, found: re.Match[str], name: str) -> _Spot | None:
    """Tell what the name means, if it and what follows are a pair."""
    kind, sure = kind_of(name + (found["second"] or "")), True
    start = found.end("rest") - len(name)
    if kind is None and name.endswith("s"):
        kind, sure = kind_of(name[:-1]), name.startswith("-")
    if kind is Kind.LIKELY:  # in two words: "access token"
        before = _WORD_BEFORE.search(text, max(0, start - _LONGEST_NAME), start)
        kind = kind_of(f"{before[1]}_{name}") or kind if before else kind
    if kind is None or (not sure and kind not in (Kind.SECRET, Kind.LIKELY)):
        return None
    paired = _PAIRED.match(text, found.end()) if name.lower() == "key" else None
    if paired and not looks_random(paired[1]):
        return None  # the value beside it is a name, too
    line_start = _starts_line(text, found, name)
    belongs = _belongs(found, kind, name, text)
    if not belongs and kind not in (Kind.SECRET, Kind.LIKELY):
        return None
    at = found.end()
    if text[at : at + 1] in ("\r", "\n"):
        below = kind is Kind.SECRET and _is_below(text, found, name)
        belongs &= bool(_LIST.match(text, at)) or below
    several = text[at : at + 1] in ("[", "{") or _LIST.match(text, at)
    sure |= kind is Kind.SECRET and bool(several)
    if found["escaped"] and "=" not in found["sign"]:  # the next line of a text in a line
        sure &= found["escaped"][-1] in " \t" or text.startswith(('"', "'"), at)
    if found["aside"] and found["aside"][0] != "[" and kind is not Kind.SECRET:
        sure &= "=" in found["sign"]  # "key (str): ..." explains what a key is
    below = text[at - 1] == "=" and text[at : at + 1] in ("\r", "\n")
    return _Spot(kind, name, at, line_start, sure=sure and belongs, below=below)


def _is_below(text: str, found: re.Match[str], name: str) -> bool:
    """Say whether the next line is the value, as in YAML: further in, and no pair itself.

    Below a sentence it must be one word.
    """
    below = _BELOW.match(text, found.end())
    if below is None:
        return False
    lead = _lead(text, found.end("rest") - len(name))
    if _starts_line(text, found, name):
        return len(below[1]) > len(lead) - len(lead.lstrip(" \t"))
    return " " not in below[2].rstrip()


def _counts(spot: _Spot, value: str) -> bool:
    """Say whether a value is to be replaced."""
    several = value[0] in "[({"
    if spot.sure and not several:
        return not harmless(spot.kind, spot.name, value)
    if spot.sure and spot.kind is Kind.SECRET:
        return True
    assigned = spot.below and not harmless(spot.kind, spot.name, value)
    tells = like_a_password if spot.kind is Kind.SECRET or assigned else looks_random
    return any(map(tells, _WORD.findall(value)))


def _whole_name(text: str, start: int, end: int) -> str:
    """Return the whole name around the word that was found, with the dashes before it."""
    first = start
    while first > max(0, start - _LONGEST_NAME) and (
        text[first - 1].isalnum() or text[first - 1] in "_-."
    ):
        first -= 1
    return text[first:end]


def _belongs(found: re.Match[str], kind: Kind, name: str, text: str) -> bool:
    """Say whether the name and what follows are a pair: an option needs no sign between them."""
    secret = kind is Kind.SECRET
    if found["sign"] or found["below"] or (secret and _is_told(found, text)):
        return True
    start = found.end("rest") - len(name)
    if found["listed"] and secret and text[max(0, start - 3) : start - 1].rstrip("b")[-1:] == "(":
        return True
    if found["space"] and secret and text[found.end()] in "\"'":
        return True
    if (
        found["space"]
        and (secret or name.isupper())
        and _SETS.search(text, max(0, start - 16), start)
    ):
        return True
    if found["said"] or not name.startswith("-"):
        # "unique_id 123456789", as the kernel writes it
        return bool(found["space"]) and kind_of(name) is Kind.SERIAL and text[found.end()].isdigit()
    following = text[found.end() : found.end() + 3].lstrip("\"'")
    return not following.startswith("-")


def _is_told(found: re.Match[str], text: str) -> bool:
    """Say whether its value follows, as in "api_key (base64): ..." and "| password | ... |"."""
    said = (found["said"] or "").strip()
    if said and said[-1] in BARS:
        return bool(_CELL.match(text, found.end()))
    return said.endswith(("->", "~>", "<-", "\u2190", "\u2192", "\u21d2", "):"))


def _starts_line(text: str, found: re.Match[str], name: str) -> bool:
    lead = _lead(text, found.end("rest") - len(name))
    return lead.strip(" \t-") in ("", "export", "set")


def _lead(text: str, start: int) -> str:
    """Return what stands before a name in its line, but for a stamp."""
    begin = text.rfind("\n", max(0, start - _INDENT), start) + 1
    lead = text[begin or max(0, start - _INDENT) : start]
    return _STAMPED.sub("", lead, count=1)


def value_at(text: str, name: str, at: int) -> tuple[int, int]:
    """Find where the value of a secret begins and ends."""
    spot = _Spot(Kind.SECRET, name, at, line_start=False, sure=True, below=False)
    return _value(text, spot, min(len(text), at + _LONGEST_LIST))


def _value(text: str, spot: _Spot, until: int) -> tuple[int, int]:  # noqa: PLR0911 - one a rule
    """Find where the value begins, and where it ends if that is before ``until``."""
    at = spot.at
    tags = _TAGS.match(text, at) if text[at - 2 : at] == ": " else None
    if tags:
        return at, _value(text, spot._replace(at=tags.end()), until)[1]
    quoted = _PREFIX.match(text, at)
    if quoted:
        first = quoted.end(1)
        return first, _closing(text, first, quoted[1], until)
    for pattern in (_BLOCK, _LIST, _BELOW if spot.sure else _NEXT_LINE):
        lines = pattern.match(text, at, until)
        if lines:
            return lines.span(lines.lastindex or 0)
    if text[at : at + 1] in ("[", "{", "(") and spot.kind in (Kind.SECRET, Kind.LIKELY):
        return at, _bracket(text, at, until)
    pattern = _extent(text, spot)
    found = pattern.match(text, at, until)
    if found is None:
        return at, at
    if pattern is not _UNQUOTED:
        return at, at + len(found[0].rstrip())
    end, opened = found.end(), set(found[0])
    for mark in reversed(text[max(at, end - _MOST_CLOSERS) : end]):
        if mark not in _CLOSERS or _OPENERS.get(mark) in opened:
            break
        end -= 1
    return at, end


def _extent(text: str, spot: _Spot) -> re.Pattern[str]:
    """Return how far a value without quotation marks reaches."""
    if spot.name.lower().endswith(("authorization", "cookie")):
        digest = text[spot.at : spot.at + 6].lower() == "digest"
        return _TO_END if digest else _TO_QUOTE_OR_END
    if spot.kind is Kind.SECRET and text[spot.at - 2 : spot.at] in (": ", "= "):
        return _TO_END if spot.line_start else _TO_QUOTE_OR_END
    return _UNQUOTED


def _bracket(text: str, first: int, until: int) -> int:
    """Return where a list or a table ends, or where looking for its end stops."""
    opener = text[first]
    closer = {"[": "]", "{": "}", "(": ")"}[opener]
    limit = min(until, first + _LONGEST_LIST, len(text))
    end = first
    for _ in range(_MOST_NESTED):
        end = text.find(closer, end, limit) + 1
        if not end:
            return limit
        if text.count(opener, first, end) <= text.count(closer, first, end):
            return end
    return end


def _closing(text: str, first: int, quote: str, until: int) -> int:
    """Return where a quoted value ends: before the same quotation mark, or at the line's end."""
    at = first
    while (at := text.find(quote, at, until)) >= 0:
        backslashes = 0
        while len(quote) == 1 and text[at - 1 - backslashes] == "\\" and at - backslashes > first:
            backslashes += 1
        if backslashes % 2 == 0:
            break
        at += 1
    end = min(until, len(text)) if at < 0 else at
    line = text.find("\n", first, end)
    return end if line < 0 else line
