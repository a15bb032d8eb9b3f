"""Values that a name beside them marks: ``password=...``, ``"token": "..."``, ``--api-key ...``.

Every pattern starts with a literal word or a bounded class and never backtracks without a bound, so
that the time is linear in the length of the text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from rocsteady.redaction.forms import REDACTED


class Kind(Enum):
    """What a name says about the value beside it."""

    SECRET = "secret"  # noqa: S105 - nobody would use this name for anything else
    LIKELY = "likely"  # names a secret, unless the value is plainly something else
    USER = "user"
    HOST = "host"
    SERIAL = "serial"


_STRONG = (
    "password",
    "passwd",
    "passwort",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "apikey",
    "webhook",
)
_LIKELY = frozenset({
    "auth", "authorization", "bearer", "cookie", "cred", "creds", "dsn", "hmac", "jwt", "key",
    "otp", "pass", "pat", "psk", "pw", "pwd", "sas", "sessid", "session", "sessionid", "sig",
    "signature", "token",
})  # fmt: skip
_JOINED = (
    "token",
    "pwd",
    "sessid",
    "authkey",
    "accesskey",
    "accountkey",
    "privatekey",
    "signingkey",
)
_AFTER = frozenset({"id", "value", "data", "b64", "base", "raw", "hex", "string", "header"})
_USERS = frozenset({"user", "username", "logname", "login"})
_HOSTS = frozenset({"host", "hostname", "nodename", "nodelist", "addr", "endpoint", "fqdn"})
# What comes before "token", "key" and "pass" in names that hold no secret.
_HARMLESS_BEFORE = frozenset({
    "added", "backward", "begin", "bos", "cache", "cls", "dict", "each", "end", "eos", "first",
    "foreign", "forward", "full", "group", "image", "last", "mask", "max", "metric", "min",
    "missing", "monitor", "multi", "new", "next", "no", "num", "one", "pad", "per", "primary",
    "prompt", "registry", "second", "sep", "single", "sort", "special", "start", "state", "stop",
    "unexpected", "unk",
})  # fmt: skip


class _Spot(NamedTuple):
    """A name, and where the value beside it begins."""

    kind: Kind
    name: str
    at: int
    line_start: bool
    sure: bool  # a sign stands between them; otherwise the value must look like a secret


_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LONGEST_NAME = 64
_INDENT = 40  # columns before a name that may be the first of its line
_ENOUGH = 96  # characters of a value that tell what it is
_MOST_CLOSERS = 8  # brackets and stops after a value that are not part of it

_NAMED = re.compile(
    r"""
    (?:pass|pwd|pw|token|secret|key|sig|auth|cred|cookie|bearer|hmac|apikey|dsn|sas|pat
      |psk|otp|jwt|sess|user|login|logname|host|node|addr|endpoint|fqdn|serial|unique|s/n|hive)
    (?=(?P<rest>[a-z0-9_.-]{0,40}))(?P=rest)
    (?P<second>[ ](?:id|number|no|num)\b)?
    (?:
      (?:\\{0,3}["']\]?)?[ \t]{0,20}
        (?P<sign>
          :[ ]?(?:optional\[)?str\]?(?:[ ]\|[ ]none)?[ ]?=(?!=)|=>|:=
          |[=!]?=(?!["'][\w.:-]{1,64}["'][ \t]{1,4}value=)  # of XML: that is a name too
          |:(?![:/])|%3[da]|&\#(?:61|58|x3[da]);|[\uff1d\uff1a])
        [ \t]{0,8}
      | (?P<xml>>)(?=[^<>\s]{1,99}</)
      # a pair of Kubernetes, an argument of a parser, a value that pydantic refused
      | (?P<below>["']?[ \t]{0,4},?[ \n][ \t]{0,40}["']?value["']?[:=][ \t]{0,8}
        |["'],[^\n)]{0,80}?default=|\n[ \t][^\n]{0,200}?input_value=)
      | (?P<listed>["'][ \t]{0,4},[ \t]{0,4}(?=["']))
      # said rather than assigned: "the password is ...", a row of a table
      | (?P<said>[ \t]{0,8}(?:[,;|]|->)[ \t]{0,8}
        |[ \t]{1,8}(?:is|was|provided)(?::[ \t]{0,8}|[ \t]{1,8})
        |[ \t]{1,4}\([^()\n]{1,20}\):?[ \t]{1,4})(?=[^\s=:])
      | (?P<space>[ \t]{0,8}\\?\r?\n[ \t]{0,20}(?:-[ ])?|[ \t]{1,8})(?=[^\s=:])
    )
    """,
    re.VERBOSE,
)
_LOWER = {ord(mark): mark.lower() for mark in string.ascii_uppercase}  # no length changes
_CONSTANT = re.compile(
    r"(?:none|true|false|null|nil|yes|no|on|off|\*+|<[a-z_ -]{1,40}>|\.\.\.)$", re.IGNORECASE
)
_CODE = re.compile(
    r"(?:lambda\b|tensor\(|torch\.|aten::|\(|\[|\{|(?:os|self|args|cfg|config|opts?|settings|hparams"
    r"|operator|getpass|socket|str|int|len|sys|np)[.\[(])"
)
_CODE_WORD = re.compile(r"(?:lambda|len|str|int|float|key|token|auth|user|host|itemgetter)$")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,6}|[0-9]{1,9}\.[0-9]{1,9}(?:e[-+]?[0-9]{1,3})?)%?$")
_STATUS = frozenset({
    "basic", "bearer", "denied", "empty", "error", "expired", "failed", "found", "invalid", "is",
    "missing", "name", "not", "ok", "required", "unknown", "unset", "value", "was",
})  # fmt: skip
# Names of parameters and of PyTorch's own keys: "fc.weight", "store_based_barrier_key:1".
_PARAMETER = re.compile(
    r"(?:\w{1,40}\.){1,20}(?:weight|bias|\w{0,20}(?:mean|var|tracked))$"
    r"|[a-z]{1,20}(?:_[a-z]{1,20}){2,6}(?::[0-9]{1,6})?$"
)
_SLUG = re.compile(r"[a-z]{2,20}(?:-[a-z0-9]{1,20}){1,8}")
_CALL = re.compile(r"[A-Za-z_]\w{0,60}(?:\.\w{1,60}){1,8}\(")
_PLAIN_HOST = re.compile(
    r"[0-9.:]+$|\[|x86|aarch|cpu|gpu|cuda|hip\b|linux|device|memory|pinned|local|0x|/|-",
    re.IGNORECASE,
)
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
_SETS = re.compile(r"\b(?:setx|setenv|set -\w{1,4}|ENV|configure set)\s+$")  # NAME VALUE
_CELL = re.compile(r"[^\s|]{6,200}[ \t]{0,40}\|")
_WORD = re.compile(r"[^\s\"'`,;()\[\]{}<>]{6,}")
_CHANCE = re.compile(r"[A-Za-z0-9+/=_-]+")
_HEX = re.compile(r"[0-9a-f]{16,}")
_LONGEST_LIST = 2000
_MOST_NESTED = 8
_DIGITS = 3
_LEAST_TURNS, _TURNS = 5, 0.4  # from small to capital letters and back, of all letters
_LEAST_VALUE = 8
_PREFIX = re.compile(r"[bBrRuUfF]{0,2}(?=(\\{0,3}[\"']))")
_CLOSERS, _OPENERS = ")]}>.,;:|\\", {")": "(", "]": "[", "}": "{", ">": "<"}


@lru_cache(maxsize=4096)
def kind_of(name: str) -> Kind | None:  # noqa: PLR0911 - one answer a rule
    """Say what a name means for the value beside it."""
    if name in ("S/N", "s/n"):
        return Kind.SERIAL
    parts = [part.lower() for part in _PARTS.findall(name)]
    letters = "".join(each for each in name.lower() if each.isalpha())  # also passWord, pass_word
    if any(word in letters for word in _STRONG[:5]) or any(
        word in part for part in parts for word in _STRONG
    ):
        return Kind.SECRET
    if "serial" in parts or parts[-2:] in (["unique", "id"], ["hive", "id"], ["machine", "id"]):
        return Kind.SERIAL
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _AFTER):
        parts.pop()
    if not parts:
        return None
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in _LIKELY or last.endswith(_JOINED):
        if parts[-2:] == ["api", "key"]:
            return Kind.SECRET
        return None if before in _HARMLESS_BEFORE else Kind.LIKELY
    if last in _USERS:
        return Kind.USER
    if last in _HOSTS and (last != "addr" or before in ("master", "host", "server", "node")):
        return Kind.HOST
    return None


def harmless(kind: Kind, name: str, value: str) -> bool:  # noqa: PLR0911 - one answer a rule
    """Say whether a value beside such a name is plainly no secret, and may be needed."""
    if not value or _CONSTANT.match(value):
        return True
    if kind is Kind.SECRET:
        return bool(_CODE.match(value)) and not value.startswith(("(", "[", "{"))
    if name.lstrip("-") in ("PWD", "pwd") and (value[0] == "/" or value[1:3] in (":\\", ":/")):
        return True  # the current folder
    if kind is Kind.SERIAL:
        return len(value) < 5 or _CODE.match(value) is not None  # noqa: PLR2004 - a serial is long
    if _NUMBER.match(value) or _CODE.match(value) or _CODE_WORD.match(value):
        return True
    if kind in (Kind.USER, Kind.HOST):
        return value[0].isdigit() or bool(_PLAIN_HOST.match(value))
    if name == "signature" and _SLUG.fullmatch(value):
        return True  # of a failure that is known here
    known = value.lower().rstrip(".,;:") in _STATUS or _CALL.match(value)
    return bool(known or _PARAMETER.match(value))


def names_secret(name: str, value: str) -> bool:
    """Say whether a variable holds a secret that can be told from everyday words."""
    kind = kind_of(name)
    if kind not in (Kind.SECRET, Kind.LIKELY) or harmless(kind, name, value):
        return False
    return len(value) >= _LEAST_VALUE and _like_a_password(value)


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
            at = first + len(REDACTED)  # more may follow in the line
        elif last > first >= copied and _counts(spot, text[first:last]):
            first, last = _value(text, spot, len(text))
            done += (text[copied:first], stand_in(spot.kind, text[first:last]))
            copied, at = last, max(at, last - _LONGEST_NAME)  # it may end with another name
    return "".join((*done, text[copied:]))


def looks_random(value: str, *, least: int = 16) -> bool:
    """Say whether a word is no word: long, with digits, and in no case that a name would have."""
    if len(value) < least or not _CHANCE.fullmatch(value):
        return False
    mixed = value.lower() != value != value.upper()
    digits = sum(mark.isdigit() for mark in value)
    return digits >= _DIGITS and (mixed or bool(_HEX.fullmatch(value)))


def _spot(text: str, found: re.Match[str], name: str) -> _Spot | None:
    """Tell what the name means, if it and what follows are a pair."""
    kind, sure = kind_of(name + (found["second"] or "")), True
    if kind is None and name.endswith("s"):
        kind, sure = kind_of(name[:-1]), False
    if kind is None or (not sure and kind not in (Kind.SECRET, Kind.LIKELY)):
        return None
    line_start = _starts_line(text, found, name)
    belongs = _belongs(found, name, text)
    if not belongs and kind not in (Kind.SECRET, Kind.LIKELY):
        return None
    at = found.end()
    if text[at : at + 1] in ("\r", "\n"):
        below = kind is Kind.SECRET and _is_below(text, found, name)
        belongs &= bool(_LIST.match(text, at)) or below
    sure |= kind is Kind.SECRET and text[at : at + 1] in ("[", "{")  # several of them
    return _Spot(kind, name, at, line_start, sure=sure and belongs)


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
    tells = _like_a_password if spot.kind is Kind.SECRET else looks_random
    return any(map(tells, _WORD.findall(value)))


def _like_a_password(word: str) -> bool:
    """Say whether a word is none of a sentence, and no path, number or code."""
    if word.startswith(("/", "./", "~")):
        return False
    if not any(mark.isdigit() for mark in word):
        turns = sum(one.islower() != two.islower() for one, two in pairwise(word))
        return turns >= max(_LEAST_TURNS, len(word) * _TURNS)
    return not (_NUMBER.match(word) or _CODE.match(word) or _CALL.match(word))


def _whole_name(text: str, start: int, end: int) -> str:
    """Return the whole name around the word that was found, with the dashes before it."""
    first = start
    while first > max(0, start - _LONGEST_NAME) and (
        text[first - 1].isalnum() or text[first - 1] in "_-."
    ):
        first -= 1
    return text[first:end]


def _belongs(found: re.Match[str], name: str, text: str) -> bool:
    """Say whether the name and what follows are a pair: an option needs no sign between them."""
    secret = kind_of(name) is Kind.SECRET
    if found["sign"] or found["xml"] or found["below"] or (secret and _is_told(found, text)):
        return True
    start = found.end("rest") - len(name)
    if found["listed"] and secret and text[max(0, start - 2) : start - 1] == "(":
        return True
    if found["space"] and secret and text[found.end()] in "\"'":
        return True
    if found["space"] and _SETS.search(text, max(0, start - 16), start):
        return True
    if found["said"] or not name.startswith("-"):
        # "unique_id 123456789", as the kernel writes it
        return bool(found["space"]) and kind_of(name) is Kind.SERIAL and text[found.end()].isdigit()
    following = text[found.end() : found.end() + 3].lstrip("\"'")
    return not following.startswith("-")


def _is_told(found: re.Match[str], text: str) -> bool:
    """Say whether its value follows, as in "api_key (base64): ..." and "| password | ... |"."""
    said = (found["said"] or "").strip()
    return said.endswith("):") or (said == "|" and bool(_CELL.match(text, found.end())))


def _starts_line(text: str, found: re.Match[str], name: str) -> bool:
    lead = _lead(text, found.end("rest") - len(name))
    return lead.strip(" \t-") in ("", "export", "set")


def _lead(text: str, start: int) -> str:
    """Return what stands before a name in its line, but for a stamp."""
    begin = text.rfind("\n", max(0, start - _INDENT), start) + 1
    lead = text[begin or max(0, start - _INDENT) : start]
    return _STAMPED.sub("", lead, count=1)


def _value(text: str, spot: _Spot, until: int) -> tuple[int, int]:
    """Find where the value begins, and where it ends if that is before ``until``."""
    at = spot.at
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
