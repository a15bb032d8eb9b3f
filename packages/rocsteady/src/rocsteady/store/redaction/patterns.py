"""What a secret is: by its form, by the name beside it, by its look. Data in ``patterns.toml``."""

from __future__ import annotations

import re
from enum import Enum
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from rocsteady.toml import parse_toml

REDACTED = "<redacted>"
# Names in snake case are no secrets: a digit, a capital or one long word must follow a prefix.
_PREFIXED = r"(?:{})(?=[\w.~-]{{0,48}}[0-9A-Z]|[A-Za-z0-9]{{16,99}}(?![\w-]))[\w.~-]{{14,}}"
# 40 hexadecimal digits are a key of Weights & Biases, or a commit; these words tell them apart.
_HEX_40 = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")
_COMMIT = re.compile(
    r"(?:git|commit|rev|sha|hash|version|tree|head|ref|blob|snapshot|object|branch|tag|build|@|#|\+g)"
    r"[\w\"'()/ :=.@-]{0,24}$",
    re.IGNORECASE,
)
# One line of a key that was broken into lines.
_KEY_LINE = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{64,76}(?![A-Za-z0-9+/])")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")  # of a name
_CHANCE, _HEX = re.compile(r"[A-Za-z0-9+/=_-]+"), re.compile(r"[0-9a-f]{16,}")
_LOOK_BACK, _LEAST_VALUE = 32, 8
_LEAST_TURNS, _TURNS = 5, 0.4  # from small to capital letters and back, of all letters


class Kind(Enum):
    """What a name says about the value beside it."""

    SECRET = "secret"  # noqa: S105 - nobody would use this name for anything else
    LIKELY = "likely"  # names a secret, unless the value is plainly something else
    USER = "user"
    HOST = "host"
    SERIAL = "serial"


TELLING = (Kind.SECRET, Kind.LIKELY)


@cache
def data() -> dict[str, Any]:
    """Return the file of patterns and words."""
    return parse_toml(files(__package__).joinpath("patterns.toml").read_text(encoding="utf-8"))


@cache
def words(table: str, key: str) -> frozenset[str]:
    """Return a list of words from that file."""
    return frozenset(data()[table][key])


@cache  # compiling all of them takes longer than most commands
def pattern(table: str, key: str) -> re.Pattern[str]:
    """Return a pattern from that file."""
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
    """Replace every secret that its form gives away."""
    for keywords, form in _forms():
        if any(map(text.__contains__, keywords)):
            text = _compiled(form).sub(_hidden, text)
    return _HEX_40.sub(_unless_commit, _KEY_LINE.sub(_if_random, text))


def _hidden(found: re.Match[str]) -> str:
    if "secret" not in found.re.groupindex:
        return REDACTED
    before, after = found.start("secret") - found.start(), found.end("secret") - found.start()
    return found[0][:before] + REDACTED + found[0][after:]


def is_commit(name: str, value: str) -> bool:
    """Return whether a value beside this name is a commit, such as ``git_version``."""
    return bool(_HEX_40.fullmatch(value) and _COMMIT.search(f"{name}=".lower()))


def _unless_commit(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - _LOOK_BACK) : found.start()]
    return found[0] if _COMMIT.search(before) else REDACTED


def _if_random(found: re.Match[str]) -> str:
    """Tell a line of a key from a long path: all sorts of characters are in it, and few words."""
    counts = [sum(map(sort, found[0])) for sort in (str.isupper, str.islower, str.isdigit)]
    parts = [part for part in found[0].split("/") if part.isalpha()]
    return REDACTED if min(counts) >= 5 and len(parts) < 3 else found[0]  # noqa: PLR2004 - by trial


@lru_cache(maxsize=4096)
def kind_of(name: str) -> Kind | None:
    """Return what a name means for the value beside it."""
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
    if last in names["likely"] or last.endswith(tuple(names["joined"])):
        if before in names["services"] and last in ("key", "token"):
            return Kind.SECRET
        return None if before in names["harmless_before"] else Kind.LIKELY
    if last in names["users"]:
        return Kind.USER
    known = last in names["hosts"] and (last != "addr" or before in ("master", "server", "node"))
    return Kind.HOST if known else Kind.SERIAL if name in ("S/N", "s/n") else None


def harmless(kind: Kind, name: str, value: str) -> bool:
    """Return whether a value beside such a name is plainly no secret, and may be needed."""
    if not value or _is(value, "constant"):
        return True
    if kind is Kind.SECRET:
        return _is(value, "code") and not value.startswith(("(", "[", "{"))
    if kind is Kind.SERIAL:
        return len(value) < 5 or _is(value, "code")  # noqa: PLR2004 - a serial is long
    folder = name.lstrip("-").lower() == "pwd" and (value[0] == "/" or value[1:3] in (":\\", ":/"))
    if folder or _is(value, "number", "code", "code_word"):
        return True
    if kind in (Kind.USER, Kind.HOST):
        return _is(value, "host")
    status = value.lower().rstrip(".,;:") in words("names", "status")
    return status or _is(value, "call", "parameter") or (name == "signature" and _is(value, "slug"))


def _is(value: str, *keys: str) -> bool:
    return any(pattern("harmless", key).match(value) for key in keys)


def names_secret(name: str, value: str) -> bool:
    """Return whether a variable holds a secret that can be told from everyday words."""
    kind = kind_of(name)
    secret = kind in TELLING and not harmless(kind, name, value)
    return secret and len(value) >= _LEAST_VALUE and is_password(value)


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
        turns = sum(one.islower() != two.islower() for one, two in pairwise(word))
        return turns >= max(_LEAST_TURNS, len(word) * _TURNS)
    return not _is(word, "number", "code", "call")
