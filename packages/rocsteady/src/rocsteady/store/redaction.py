"""Hides secrets and names: a secret is known by its form, by the name beside it, or by its look.

Patterns and words are data, in ``redaction.toml``. A value that is joined to a telling name
(``password=...``, ``"token": "..."``, ``--api-key ...``, YAML) is hidden whatever it looks like.
Near such a name, in its line and the lines right below it, words that look drawn by chance are
hidden too: that covers sentences, tables, elements and records. Every look around a name is
bounded, so that the time is linear in the length of the text.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import platform
import re
import shlex
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, lru_cache, partial
from importlib.resources import files
from ipaddress import AddressValueError, IPv6Address
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote

from rocsteady.toml import parse_toml

REDACTED = "<redacted>"
# Names in snake case are no secrets: a digit, a capital or one long word must follow a prefix.
_PREFIXED = r"(?:{})(?=[\w~-]{{0,48}}[0-9A-Z]|[A-Za-z0-9]{{16,99}}(?![\w-]))[\w.~-]{{14,}}"
# 40 hexadecimal digits are a key of Weights & Biases, or a commit; these words tell them apart, and
# what sha1sum and git write behind one that begins a line.
_HEX_40 = re.compile(
    r"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z]|(?<=^.{40})(?: [ *][\w./]|\srefs/))", re.MULTILINE
)
_COMMIT = re.compile(
    r"(?:git|commit|rev|sha|hash|md5|digest|version|tree|head|ref(?!us)|blob|snapshot|object|branch"
    r"|tag|build|checked[ -]?out|checkout|parents?|merge|@|#|\+g)"
    r"(?:[\w\"'()/ :=.@-]{0,24}|\d? ?\([^()\n]{1,100}\) ?= )$",  # SHA1(file)=, of openssl
    re.IGNORECASE,
)
# Other letters than those of hexadecimal digits are in checksums only.
_CHECKSUM = re.compile(r"(?:sha|hash|md5|digest|integrity)[\w\"'()/ :=.@-]{0,24}$", re.IGNORECASE)
# One line of a key that was broken into lines.
_KEY_LINE = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{64,76}(?![A-Za-z0-9+/])")
# Of other words, what a published prefix is followed by, or what is long enough to be a key.
_WORD = re.compile(
    r"(?<![\w/\\.~+=-])(?!sha\d)(?:--?(?=[a-z]))?(?P<head>[A-Za-z0-9][\w.~+=-]{15,})(?:/[\w/+=-]*)?"
)
_DRAWN = (re.compile(r"[A-Za-z0-9]{16,}"), re.compile(r"[\w~+-]{20,}"))
_SYLLABLES = re.compile(r"[A-Z]?[a-z]{2,}|\d+(?:x\d+)+")
_MOST_SPOKEN, _LEAST_SMALL = 0.6, 24
_MOST_SPOKEN_IN_ALL, _TURNS_IN_ALL, _PIECE, _LEAST_CASE = 0.55, 0.3, 8, 4
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")  # of a name
_CHANCE, _HEX = re.compile(r"[A-Za-z0-9+/=_-]+"), re.compile(r"[0-9a-f]{16,}")
_LOOK_BACK, _LEAST_VALUE = 128, 8
_LEAST_TURNS, _TURNS = 5, 0.4  # from small to capital letters and back, of all letters


class Kind(Enum):
    SECRET = "secret"  # noqa: S105 - nobody would use this name for anything else
    LIKELY = "likely"  # names a secret, unless the value is plainly something else
    USER = "user"
    HOST = "host"
    SERIAL = "serial"


TELLING = (Kind.SECRET, Kind.LIKELY)


@cache
def data() -> dict[str, Any]:
    return parse_toml(files(__package__).joinpath("redaction.toml").read_text(encoding="utf-8"))


@cache
def words(table: str, key: str) -> frozenset[str]:
    return frozenset(data()[table][key])


@cache  # compiling all of them takes longer than most commands
def pattern(table: str, key: str) -> re.Pattern[str]:
    return re.compile(data()[table][key])


@cache
def _forms() -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return what must be in a text, and the pattern to try then; all prefixes are one pattern."""
    entries = [(tuple(entry["keyword"]), entry.get("pattern", "")) for entry in data()["secret"]]
    prefixes = [keyword for keywords, own in entries if not own for keyword in keywords]
    together = _PREFIXED.format("|".join(map(re.escape, prefixes)))
    return (tuple(prefixes), together), *(entry for entry in entries if entry[1])


@cache
def _compiled(form: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9])(?:{form})", re.MULTILINE)


def replace_forms(text: str) -> str:
    for keywords, form in _forms():
        if any(map(text.__contains__, keywords)):
            text = _compiled(form).sub(_hidden, text)
    text = _KEY_LINE.sub(_if_random, _WORD.sub(_if_drawn, text))
    return _HEX_40.sub(_unless_commit, text)


def _hidden(found: re.Match[str]) -> str:
    group = "secret" if "secret" in found.re.groupindex else 0
    return _with(found, group, _LINE.sub(REDACTED, found[group]))


def _with(found: re.Match[str], group: str | int, text: str) -> str:
    before, after = found.start(group) - found.start(), found.end(group) - found.start()
    return found[0][:before] + text + found[0][after:]


def _unless_commit(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - _LOOK_BACK) : found.start()]
    return found[0] if _COMMIT.search(before) else REDACTED


def _if_drawn(found: re.Match[str]) -> str:
    """Hide a word of which a part looks drawn by chance, unless it is a hash that is named."""
    text = found.string
    for part in (each for kind in _DRAWN for each in kind.finditer(text, *found.span("head"))):
        since = max(0, part.start() - _LOOK_BACK)
        if is_drawn(part[0]) and not _CHECKSUM.search(text, since, part.start()):
            return REDACTED
    return found[0]


def _if_random(found: re.Match[str]) -> str:
    """Tell a line of a key from a long path: all sorts of characters are in it, and few words."""
    counts = [sum(map(sort, found[0])) for sort in (str.isupper, str.islower, str.isdigit)]
    parts = [
        part for part in found[0].split("/") if part.isalpha() and _turns(part) < len(part) / 3
    ]
    drawn = min(counts) >= 5 or _turns(found[0]) > len(found[0]) / 3  # noqa: PLR2004 - by trial
    drawn = drawn and len(parts) < 3 and not _HEX.fullmatch(found[0])  # noqa: PLR2004 - by trial
    return REDACTED if drawn else found[0]


def is_drawn(part: str) -> bool:
    """Tell letters and digits that were drawn by chance from words, and from a hash."""
    upper, lower, digits = (
        sum(map(sort, part)) for sort in (str.isupper, str.islower, str.isdigit)
    )
    if upper and lower:
        spoken = sum(map(len, _SYLLABLES.findall(part)))
        if part.isalnum() and min(upper, lower, digits) > 1 and spoken <= len(part) * _MOST_SPOKEN:
            return True
        letters, turns = upper + lower + digits, _turns(part)
        if (len(part) - letters) * _PIECE > len(part) or min(upper, lower) < _LEAST_CASE:
            return False
        return spoken <= letters * _MOST_SPOKEN_IN_ALL and turns > len(part) * _TURNS_IN_ALL
    turns = sum(one.isdigit() != two.isdigit() for one, two in pairwise(part))
    long = part.isalnum() and len(part) >= _LEAST_SMALL
    return long and turns > len(part) / 4 and not _HEX.fullmatch(part.lower())


@lru_cache(maxsize=4096)
def kind_of(name: str) -> Kind | None:
    parts = [part.lower() for part in _PARTS.findall(name)]
    names, ends = data()["names"], parts[-2:]
    letters = "".join(each for each in name.lower() if each.isalpha())  # also passWord, pass_word
    split = any(word in letters for word in names["strong"] if word.startswith("pass"))
    if split or any(word in part for part in parts for word in names["strong"]):
        return Kind.SECRET
    if "serial" in parts or (ends[-1:] == ["id"] and ends[0] in ("unique", "hive", "machine")):
        return Kind.SERIAL
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in names["after"]):
        parts.pop()
    before, last = ["", "", *parts][-2:]
    end = next((each for each in names["joined"] if last.endswith(each)), last)
    if end in names["likely"]:
        first = last.removesuffix(end) or before  # "accesstoken" is "access_token"
        if first in names["services"] or (first and end in names["sure"]):
            return Kind.SECRET
        return None if before in names["harmless_before"] else Kind.LIKELY
    if last in names["users"]:
        return Kind.USER
    known = last in names["hosts"] and (last != "addr" or before in ("master", "server", "node"))
    return Kind.HOST if known else Kind.SERIAL if name in ("S/N", "s/n") else None


def harmless(kind: Kind, name: str, value: str) -> bool:
    if not value or _is(value, "constant", "placeholder"):
        return True
    if kind is Kind.SECRET:
        return _is(value, "code") and not value.startswith(("(", "[", "{"))
    if kind is Kind.SERIAL:
        return len(value) < 5 or _is(value, "code")  # noqa: PLR2004 - a serial is long
    accounts = tuple(words("names", "accounts"))  # auth=("somebody", "...")
    other = not (name.lower().endswith(accounts) and _is(value, "texts"))
    folder = name.lstrip("-").lower() == "pwd" and (value[0] == "/" or value[1:3] in (":\\", ":/"))
    if other and (folder or _is(value, "number", "code", "code_word")):
        return True
    if kind in (Kind.USER, Kind.HOST):
        return _is(value, "host")
    status = value.lower().rstrip(".,;:") in words("names", "status")
    named = name == "signature" and _is(value, "slug")
    return other and (status or named or _is(value, "call", "parameter"))


def _is(value: str, *keys: str) -> bool:
    return any(pattern("harmless", key).match(value) for key in keys)


def names_secret(name: str, value: str) -> bool:
    """Return whether a variable holds a secret, whatever it looks like, unless a path."""
    long, constant = len(value) >= _LEAST_VALUE, _is(value, "constant")
    return kind_of(name) in TELLING and long and not constant and not os.path.lexists(value)


def is_random(value: str, *, least: int = 16, digits: int = 3) -> bool:
    """Return whether a word is no word: long, with digits, in no case that a name would have."""
    if len(value) < least or not _CHANCE.fullmatch(value):
        return False
    mixed = value.lower() != value != value.upper()
    return sum(map(str.isdigit, value)) >= digits and (mixed or bool(_HEX.fullmatch(value)))


def is_password(word: str) -> bool:
    """Return whether a word is none of a sentence, and no path, number or code."""
    if word.startswith(("/", "./", "~")):
        return False
    if not any(map(str.isdigit, word)):
        return _turns(word) >= max(_LEAST_TURNS, len(word) * _TURNS)
    return not _is(word, "number", "code", "call")


def _turns(word: str) -> int:
    return sum(one.islower() != two.islower() for one, two in pairwise(word))


StandIn = Callable[[Kind, str], str]

_WIDE = {ord(mark) + 0xFEE0: mark for mark in (*string.ascii_letters, *string.digits, *"_-")}
_LOWER = {ord(mark): mark.lower() for mark in string.ascii_uppercase}  # no length changes
_LOWER |= {wide: mark.lower() for wide, mark in _WIDE.items()}
_NAME = re.compile(
    r"(?:pass|pwd|pw|token|secret|key|sig|auth|cred|cookie|bearer|hmac|dsn|sas|pat|psk|otp|jwt|sess"
    r"|webhook|user|login|logname|host|node|addr|endpoint|fqdn|serial|unique|s/n|hive)"
    r"(?=(?P<rest>(?:[a-z0-9_.]|-(?!>)){0,40}))(?P=rest)(?P<second> (?:id|number|no|num)\b)?"
)
_TWO_WORDS = re.compile(r"(?<![A-Za-z])([A-Za-z]{2,20}) $")  # "access token"
_LINE = re.compile(r"\S[^\n\r]*")
_cells = lru_cache(64)(re.compile("[,;\t|\u2502\u2503\u2506\u2551]").split)  # of a row
_RULE = frozenset("-=:+ ")  # below the names of columns
_LONGEST_NAME, _INDENT, _ENOUGH, _FAR, _NEAR = 64, 40, 96, 200, 60  # characters
_LINES_BELOW, _ROWS = 3, 50
_CLOSERS, _ENDS = ")]}>.,;:|\\", ".:!?="  # after a word
_join, _form = partial(pattern, "joins"), partial(pattern, "values")


class _Name(NamedTuple):
    kind: Kind
    text: str
    start: int
    end: int


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
    at, aliases, near = 0, set[str](), _Near(text)
    lowered = text.translate(_LOWER)  # ten times as fast as a pattern that ignores case
    while found := _NAME.search(lowered, at):
        at = found.end("rest")
        name = _name(text, found)
        if name is None:
            continue
        if (begins := _joined(text, name)) >= 0:
            first, last = _value(text, name, begins, begins + _ENOUGH)
            if text.startswith(REDACTED, first):
                at = first + len(REDACTED)  # more may follow in the line
                continue
            if last > first and not harmless(name.kind, name.text, text[first:last]):
                first, last = _value(text, name, begins, len(text))
                at = max(at, last - _LONGEST_NAME)  # it may end with another name
                yield first, last, name.kind
                if alias := _form("alias").match(text, first):
                    aliases.add(alias[1])
                continue
        if name.kind in TELLING:
            yield from ((*span, Kind.SECRET) for span in near.words(name))
    for found in _form("anchor").finditer(text) if aliases else ():
        if found[1] in aliases:
            yield *found.span(2), Kind.SECRET


def _name(text: str, found: re.Match[str]) -> _Name | None:
    start, end = found.start(), found.end("rest")
    start -= len(re.split(r"[^\w.-]", text[max(0, start - _LONGEST_NAME) : start])[-1])
    name, second = text[start:end].translate(_WIDE), found["second"] or ""
    kind = kind_of(name + second)
    if kind is None and name.endswith(("s", "S")):
        kind = kind_of(name[:-1])
        kind = kind if kind in TELLING else None
    if kind is None and text[end : end + 1] == "]":  # the table of TOML [auth.x]
        parts = (part.removesuffix("s") for part in name.split("."))
        kind = next((k for part in parts if (k := kind_of(f"{part}_value"))), None)
    if kind is Kind.LIKELY and name.lower() in ("key", "token", "cookie"):
        before = _TWO_WORDS.search(text, max(0, start - _LONGEST_NAME), start)
        kind = (kind_of(f"{before[1]}_{name}") or kind) if before else kind
    return _Name(kind, name, start, end + len(second)) if kind else None


def _joined(text: str, name: _Name) -> int:
    """Return where the value of a name begins; -1: nothing joins one to it."""
    kind, start, end, option = name.kind, name.start, name.end, name.text.startswith("-")
    secret = kind is Kind.SECRET
    if found := _join("sign").match(text, end):
        return found.end() if _is_sure(text, name, found) else -1
    if kind in TELLING and (found := _join("record").match(text, end)):
        value = re.split("[\"'<]", text[found.end() : found.end() + _ENOUGH].lstrip("\"'"))[0]
        plain = not secret and name.text.isalpha() and name.text.islower()
        if not plain or is_random(value, least=12, digits=1):  # "key": of a table, too
            return found.end()
    if secret and (found := _join("surely").match(text, end)):
        return found.end()
    call = secret and text[max(0, start - 3) : start - 1].rstrip("b").endswith("(")
    if found := _join("listed" if call or option else "headed").match(text, end):
        return found.end()
    if found := _join("space").match(text, end):
        before = _join("sets").search(text, max(0, start - 16), start)
        sets = before and (secret or name.text.isupper())
        numbered = kind is Kind.SERIAL and text[found.end()].isdigit()  # "unique_id 123"
        if option or ("\n" not in found[0] and (sets or numbered)):
            return found.end()
    return -1


def _is_sure(text: str, name: _Name, found: re.Match[str]) -> bool:
    at, secret, assigns = found.end(), name.kind is Kind.SECRET, "=" in found["sign"]
    plural = name.text[0] != "-" and name.text[-1] in "sS" and kind_of(name.text) is None
    if plural and not (secret and _form("several").match(text, at)):
        return False  # "tokens: 12"
    explained = found["aside"] and found["aside"][0] != "[" and not assigns  # "key (str): ..."
    if not secret and (explained or _join("paired").match(text, at)):
        return False  # {"key": "TOKEN", "value": ...}
    escaped = "" if assigns else found["escaped"]  # the next line of a text in a line
    return not escaped or escaped[-1] in " \t" or text.startswith(('"', "'"), at)


def _value(text: str, name: _Name, at: int, until: int) -> tuple[int, int]:
    """Find a value: in quotation marks, in the lines below its name, or in its line."""
    begins, until, secret = at, min(until, len(text)), name.kind is Kind.SECRET
    if tags := _form("tags").match(text, at):
        at = tags.end()
    if quoted := _form("quoted").match(text, at, until):
        begins, last = (begins if tags else quoted.start("value")), quoted.end("value")
    elif opens := _form("opens" if secret else "block").match(text, at, until):
        last = _end_of_lines(text, name, opens.end(), until)
        begins = begins if last > opens.end() else last
    else:
        telling, before = name.kind in TELLING, text[at - 2 : at]
        whole = name.text.lower().endswith(("authorization", "cookie")) or before[1:] == ">"
        line = whole or (secret and before in (": ", "= "))
        found = telling and _form("bracket").match(text, at, until)
        if telling and name.text.lower() != "key":  # sorted(key=...)
            found = found or _form("call").match(text, at, until)
        found = found or _form("line" if line else "word").match(text, at, until)
        last = at + len(found[0].rstrip(" \t" if line else _CLOSERS)) if found else at
        if secret and before == ": " and text[last : last + 1] in ("\r", "\n"):
            last = _end_of_lines(text, name, last, last + _FAR)
    several = name.text[0] == "-" and name.text.endswith("s")  # it takes several
    more = _form("more").match(text, last, until) if several else None
    return begins, more.end() if more else last


def _end_of_lines(text: str, name: _Name, at: int, until: int) -> int:
    """Return where the lines of YAML end that are further in than a name, or a table of TOML."""
    first = _join("first").search(text, max(0, name.start - _INDENT), name.start)
    table = text[name.start - 1 : name.start] == "["
    indent = -1 if table else len(first["indent"]) if first else 0
    for _ in range(_ROWS):
        line = _form("lines").match(text, at, until)
        if line is None or len(line[1]) < indent + (line[2] is None):
            break
        if table and text[line.start(3)] == "[":
            break
        at = line.end()
    return at


class _Near:
    """Finds words near a name that look drawn: before it, in its line, and in the lines below."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._until = {Kind.SECRET: 0, Kind.LIKELY: 0}  # what was looked at already
        self._rows = range(0)  # of the last table

    def words(self, name: _Name) -> Iterator[tuple[int, int]]:
        text, secret, at = self._text, name.kind is Kind.SECRET, name.end
        if found := _join("before").search(text, max(0, name.start - _FAR), name.start):
            yield found.span("value")
        label = secret and _join("label").search(text, max(0, name.start - 24), name.start)
        lines = text[at : at + _FAR * (_LINES_BELOW + 1)].split("\n")[: _LINES_BELOW + 1]
        before = re.split(r"[\n/()\[\]{}\"']", text[max(0, name.start - _FAR) : name.start])[-1]
        header = f"{before}{name.text}{lines[0]}".replace(REDACTED, "")  # hidden in it before
        is_header = len(lines) > 1 and _join("header").fullmatch(header)
        if secret and is_header and name.start not in self._rows:
            yield from self._column(_cells(before), _cells(lines[0]), at + len(lines[0]) + 1)
        until, close = self._until[name.kind], name.end + _NEAR
        far = name.start - (_FAR if label else _NEAR)
        begin = max(far, 0 if label else text.rfind("\n", max(far, 0), name.start) + 1)
        for number, line in enumerate(lines if secret or is_header else lines[:1]):
            least, digits = (12, 1) if secret or number else (16, 3)
            for word in _join("word").finditer(text, begin, at + min(len(line), _FAR)):
                first, plain = word.start(), word[0].rstrip(_ENDS)
                is_close = word[0] == line.strip() if number else name.end <= first < close
                given = first >= until and (label or first >= at)
                short = (number or far < first < close) and _form("short").match(plain)
                if (
                    (short and (secret or not _form("said").search(plain)))
                    or (given and is_random(plain, least=least, digits=digits))
                    or (secret and is_close and is_password(plain))
                ):
                    yield word.span()
            at = begin = at + len(line) + 1
        self._until[name.kind] = at

    def _column(
        self, before: Sequence[str], after: Sequence[str], at: int
    ) -> Iterator[tuple[int, int]]:
        """Find what stands below a name that is alone in its cell."""
        index, count, begins = len(before) - 1, len(before) + len(after) - 1, at
        alone = count > 1 and not (before[-1] + after[0]).strip()
        for line in self._text[at : at + _ROWS * _FAR].split("\n") if alone else ():
            cells, is_rule = _cells(line), line.strip() and not any(map(str.isalnum, line))
            if len(cells) != count and not is_rule:
                break
            plain = "" if is_rule else cells[index].strip(" \"'\r")
            if not (set(plain) <= _RULE or harmless(Kind.SECRET, "", plain)):
                first = at + len("".join(cells[:index])) + index + cells[index].index(plain)
                yield first, first + len(plain)
            at += len(line) + 1
        self._rows = range(begins, at)


Names = Iterable[str]
USER, HOST = "user", "host"
TEMPORARY = "/tmp"  # noqa: S108 - recognised, not written to
NAME_SERVERS = Path("/etc/resolv.conf")
# Before lines of a log that rocsteady kept, and of the same in ``watch``.
_STAMP = re.compile(r"^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|\d\d:\d\d:\d\d) ", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,32}m")
_PASSWORD = re.compile(r"://[^/\s:@\"'<>]{0,200}:([^/\s\"'<>@]{1,200})@")
_NUMBERED = re.compile(r"[0-9]+")
_VERSION = re.compile(  # before four numbers that are no address
    r"(?:version|driver|firmware|release|build|rocm|==|>=|<=|~=|\bv|-)[\s\"':=]{0,4}$",
    re.IGNORECASE,
)
_OCTET, _SMALL = 255, 40  # no part of a version with four parts is larger, mostly
_WIDTHS = {"uuid": 12, "gpu": 16, "container": 64}  # of what stands for an identity
_LEAST_SECRET, _LEAST_PASSWORD, _MAX_SECRETS = 10, 8, 200  # that are known by their value
_LONGEST_REMEMBERED, _MAX_REMEMBERED = 200, 20_000
_LEAST_NAME = 3  # a user called "a" cannot be told from the letter
_PLAIN = frozenset({bool, float, int, type(None)})  # that no text is in


@lru_cache(maxsize=4096)  # of stacks the same lines come again and again
def hide_secrets(text: str) -> str:
    """Return ``text`` without passwords, tokens and keys. Names and addresses stay."""
    return _plainly(text, lambda plain: replace_named(replace_forms(plain), _secret))


def _plainly(text: str, hide: Callable[[str], str]) -> str:
    """Hide what is secret as if no colours and no times of ours stood between the words."""
    if _COLOUR.search(text):
        plain = _COLOUR.sub("", text)
        hidden = _plainly(plain, hide)
        return hide(text) if hidden == plain else hidden
    stamps = [found.group() if (found := _STAMP.match(line)) else "" for line in text.split("\n")]
    if not any(stamps):
        return hide(text)
    lines = hide(_STAMP.sub("", text)).split("\n")
    same = len(lines) == len(stamps)
    return "\n".join(map("".join, zip(stamps, lines, strict=True)) if same else lines)


def shown_command(words: Sequence[str]) -> str:
    return shlex.join(map(str, Secrets().items(words)))


class Secrets:
    def text(self, text: str) -> str:
        return hide_secrets(text)

    def value(self, value: object) -> object:
        """Redact every text of a value by itself, and what stands beside a telling name in it."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            # Of {"name": "TOKEN", "value": ...} too, as Kubernetes writes it.
            label = value.get("name")
            return {
                self.value(key): self.pair(
                    label if key == "value" and isinstance(label, str) else str(key), item
                )
                for key, item in value.items()
            }
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
            return self.items(value)
        return value

    def pair(self, name: str, value: object) -> object:
        kind = kind_of(name)
        if kind is None or isinstance(value, bool) or value is None:
            is_hash = isinstance(value, str) and _HEX_40.fullmatch(value)
            commit = is_hash and _COMMIT.search(f"{name}=".lower())
            return value if commit else self.value(value)
        if isinstance(value, str):
            return value if harmless(kind, name, value) else self._beside_name(kind, value)
        if isinstance(value, int | float):
            return REDACTED if kind is Kind.SECRET else value
        return _all(value) if kind in TELLING else self.value(value)

    def items(self, items: Sequence[object]) -> list[object]:
        """Redact a list; a value may follow its option, and a key may take several lines."""
        done: list[object] = []
        for before, word in zip(("", *items), items, strict=False):
            option = isinstance(before, str) and before.startswith("-") and "=" not in before
            follows = option and isinstance(word, str) and not word.startswith("-")
            done.append(self.pair(str(before), word) if follows else self.value(word))
        if not all(isinstance(word, str) for word in done):
            return done
        given = [str(word) for word in done]  # as in ``sshpass -p ...``, and lines of one text
        return list(self._together(self._together(given, " "), "\n"))

    def _together(self, parts: Sequence[str], by: str) -> Sequence[str]:
        """Redact what only the parts before it give away."""
        redacted = self.text(by.join(parts)).split(by)
        return redacted if len(redacted) == len(parts) else parts

    def _beside_name(self, kind: Kind, value: str) -> str:
        return _secret(kind, value)


class Redactor(Secrets):
    """Knows the names of one machine and replaces them everywhere."""

    def __init__(self, *, homes: Names, users: Names, hosts: Names, secrets: Names = ()) -> None:
        self._cached = lru_cache(_MAX_REMEMBERED)(self._text)  # the same lines come again
        self._secrets: set[str] = set()
        self._spelled: list[str] = []  # the longest first: one may be part of another
        for secret in secrets:
            self._remember(secret)
        self._serials: dict[str, int] = {}
        self._addresses: dict[str, int] = {}
        plain = {home.replace("\\", "/").rstrip("/") for home in homes} - {"", "/"}
        # Longest first, so that a home below another home is not cut in half.
        self._homes = sorted(plain, key=len, reverse=True)
        self._users, hidden = _worth_hiding(users), _worth_hiding(hosts)
        names = "|".join(map(_spelling, sorted(self._users | hidden, key=len, reverse=True)))
        self._name = re.compile(
            rf"(?<![A-Za-z0-9])(?:{names or '(?!)'})(?![A-Za-z0-9])", re.IGNORECASE
        )

    def text(self, text: str) -> str:
        return _plainly(text, self._cached if len(text) <= _LONGEST_REMEMBERED else self._text)

    def _text(self, text: str) -> str:
        for password in passwords_in(text):
            self._remember(password)
        text = replace_forms(self._without_known(text))
        for home in self._homes:
            for spelling in (home, home.replace("/", "\\"), home.replace("/", "\\\\")):
                if spelling in text:
                    whole = rf"{re.escape(spelling)}(?![A-Za-z0-9_.-])"
                    text = re.sub(whole, _stand_in(home), text)
        text = replace_named(self._places(text, folders=True), self._beside_name)
        text = self._places(self._without_known(text), folders=False)
        return self._name.sub(lambda m: USER if m[0].lower() in self._users else HOST, text)

    def serial(self, serial: str) -> str:
        """Return a small number that stands for ``serial``; 0 and nothing stay what they are."""
        plain = serial.strip().lower().removeprefix("0x").lstrip("0")
        return str(self._serials.setdefault(plain, len(self._serials) + 1)) if plain else serial

    def _beside_name(self, kind: Kind, value: str) -> str:
        if kind is Kind.SERIAL:
            return value if value.isalpha() else self.serial(value)
        if kind is Kind.USER:
            return value if is_everyday(value) else USER
        if kind is Kind.HOST:
            name, colon, port = value.partition(":")
            plain = is_everyday(name) or _is_public(name)
            return value if plain else f"{HOST}{colon}{self.text(port)}"
        if is_random(value, least=_LEAST_SECRET):
            self._remember(value)
        return _secret(kind, value)

    def _remember(self, secret: str) -> None:
        """Hide a secret from now on where it stands without its name, too."""
        if secret not in self._secrets and len(self._secrets) < _MAX_SECRETS:
            self._secrets.add(secret)
            self._spelled = sorted({*self._spelled, *_spellings(secret)}, key=len, reverse=True)
            self._cached.cache_clear()

    def _without_known(self, text: str) -> str:
        for secret in self._spelled:
            text = text.replace(secret, REDACTED)
        return text

    def _places(self, text: str, *, folders: bool) -> str:
        for place, check in _all_places():
            if (check == "user") is folders:
                shown = partial(self._shown, check)
                text = place.sub(lambda found: _with(found, "name", shown(found)), text)  # noqa: B023 - used here
        return text

    def _shown(self, check: str, found: re.Match[str]) -> str:
        name = found["name"]
        if check == "user":
            known = name.lower() in words("places", "kept_users") or is_everyday(name)
            return name if known else USER
        if check in _WIDTHS:
            bare, identity = re.sub("[-_]", "", name), name.replace("_", "-")
            stands_in = bare.isdigit() and bare.startswith("0" * (len(bare) - 6))  # for another one
            number = f"{int(bare if stands_in else self.serial(identity)):0{_WIDTHS[check]}d}"
            return f"00000000-0000-0000-0000-{number}" if check == "uuid" else number
        if check == "mac":
            return (found["sep"] or ":").join(["00"] * 6)
        if check == "ipv4" and not _is_no_address(found):
            return f"192.0.2.{self._addresses.setdefault(name, len(self._addresses)) % 254 + 1}"
        if check == "mail":
            return f"{USER}@{HOST}"
        return {"ipv6": _ipv6, "dotted": _dotted, "host": _host}.get(check, str)(name)


def redactor_here(environment: Mapping[str, str] = os.environ) -> Redactor:
    """Return a redactor that knows every name this machine goes by. Nothing asks a name server."""
    places = {key: [environment.get(name, "") for name in words("variables", key)]
              for key in ("homes", "users", "hosts")}  # fmt: skip
    homes, users, hosts = places["homes"], places["users"], [platform.node(), *places["hosts"]]
    if environment is os.environ:
        homes += [str(Path.home()), str(Path.home().resolve())]
        with contextlib.suppress(ImportError, KeyError, OSError):  # no such user
            users.append(getpass.getuser())
    users += [home.replace("\\", "/").rstrip("/").rpartition("/")[2] for home in homes]
    domains = [name.partition(".")[2] for name in hosts]
    with contextlib.suppress(OSError), NAME_SERVERS.open(errors="replace") as stream:
        for line in map(str.split, stream.read(4096).splitlines()):
            domains += line[1:] if line[:1] in (["search"], ["domain"]) else ()
    hosts += [name.partition(".")[0] for name in hosts]
    hosts += [name for name in domains if "." in name]
    secrets = [value for name, value in environment.items() if names_secret(name, value)]
    secrets += [password for value in environment.values() for password in passwords_in(value)]
    return Redactor(homes=homes, users=users, hosts=hosts, secrets=secrets)


def passwords_in(text: str) -> Iterator[str]:
    for found in _PASSWORD.finditer(text) if "://" in text else ():
        typed = unquote(found[1])
        if len(typed) >= _LEAST_PASSWORD and is_password(typed):
            yield from (found[1], typed)


def _all(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _all(item) for key, item in value.items()}
    if isinstance(value, str):
        return value and REDACTED
    return [_all(item) for item in value] if isinstance(value, Sequence) else value


def _secret(kind: Kind, value: str) -> str:
    return value if kind not in TELLING or value.startswith(REDACTED) else REDACTED


def _stand_in(home: str) -> str:
    """Return a home that says as much: one that is lost at a reboot still is."""
    if home[1:2] == ":":
        return f"{home[:2]}/Users/{USER}"
    return f"{TEMPORARY}/{USER}" if home.startswith(f"{TEMPORARY}/") else "/home/user"


def _spellings(secret: str) -> set[str]:
    """Return a secret as it is, and as Python (its bytes too), JSON and addresses write it."""
    texts = {
        repr(secret)[1:-1],
        *(json.dumps(secret, ensure_ascii=each)[1:-1] for each in (True, False)),
    }
    raw = secret.encode(errors="surrogateescape")
    return {secret, *texts, repr(raw)[2:-1], quote(raw), quote(raw, safe=""), quote_plus(raw)}


def _spelling(name: str) -> str:
    """Return a pattern for a name; of ``node-17`` also for ``node-18``, which is a host as well."""
    stem = _NUMBERED.sub("", name).strip("-._")
    common = is_everyday(stem) or stem in words("places", "common_stems")
    numbered = len(stem) >= _LEAST_NAME and not common
    return _NUMBERED.sub("[0-9]{1,9}", re.escape(name)) if numbered else re.escape(name)


def _worth_hiding(names: Names) -> set[str]:
    return {name.lower() for name in names if len(name) >= _LEAST_NAME and not is_everyday(name)}


def is_everyday(name: str) -> bool:
    return name.lower() in words("places", "everyday")


def _is_public(host: str) -> bool:
    labels = host.lower().rstrip(".").split(".")
    ends = (".".join(labels[index:]) for index in range(len(labels)))
    return any(end in words("places", "public") for end in ends)


@cache
def _all_places() -> tuple[tuple[re.Pattern[str], str], ...]:
    places = data()["place"]
    return tuple((re.compile(place["pattern"]), place["check"]) for place in places)


def _is_no_address(found: re.Match[str]) -> bool:
    address, octets = found["name"], found["name"].split(".")
    before = found.string[max(0, found.start() - 16) : found.start()]
    numbers = [int(octet) for octet in octets]
    real = max(numbers) <= _OCTET and all(octet == "0" or octet[0] != "0" for octet in octets)
    plain = address.startswith(("127.", "0.", "255.", "192.0.2.")) or _VERSION.search(before)
    small = len(octets[0]) == 1 and max(numbers) <= _SMALL and before[-1:] not in ("[", "(", "<")
    return not real or bool(plain) or (small and not found.string.startswith(":", found.end()))


def _ipv6(name: str) -> str:
    address = name.partition("%")[0].rstrip(".")
    try:
        parsed = IPv6Address(address if address.endswith("::") else address.rstrip(":"))
    except AddressValueError:
        return name
    return name if parsed.is_loopback else "2001:db8::1"


def _host(name: str) -> str:
    whole = name.rstrip(".-")
    plain = "." not in whole and (is_everyday(whole) or whole.lower() in ("proxy", "registry"))
    if plain or whole.replace(".", "").isdigit() or _is_public(whole):
        return name
    return HOST + name[len(whole) :]


def _dotted(name: str) -> str:
    labels = name.lower().split(".")
    end, long = labels[-1], len(labels) > 2  # noqa: PLR2004 - a, b and the end
    sure = end in words("places", "ends") or (end in words("places", "countries") and long)
    marked = any(mark.isdigit() or mark == "-" for mark in labels[0])
    unsure = end in words("places", "unsure_ends") and long and marked
    return HOST if (sure or unsure) and not _is_public(name) else name
