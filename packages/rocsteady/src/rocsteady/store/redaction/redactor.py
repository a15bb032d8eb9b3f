"""Takes out of texts what is secret, or names a person, a host or one piece of hardware.

The same secret always becomes the same stand-in, so that what belonged together still does:
partitions of one card keep one serial, a path and the variable that names it still agree.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from urllib.parse import unquote

from rocsteady.store.redaction.key_values import replace_named
from rocsteady.store.redaction.locations import (
    EVERYDAY,
    HOME,
    HOST,
    USER,
    is_public,
    replace_addresses,
    replace_folders,
)
from rocsteady.store.redaction.records import replace_in_records
from rocsteady.store.redaction.secret_names import (
    Kind,
    harmless,
    kind_of,
    like_a_password,
    looks_random,
)
from rocsteady.store.redaction.secret_patterns import (
    REDACTED,
    is_commit,
    replace_forms,
    without_keys,
)
from rocsteady.store.redaction.tables import names_below, replace_below

_GO_ON = (":", "|", ">", "=", "+", "\\", "[", "{", "(")  # at the end of a line
TEMPORARY = "/tmp"  # noqa: S108 - recognised, not written to

_UUID = re.compile(r"[0-9a-f]{8}([-_])(?:[0-9a-f]{4}\1){3}[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE)
_GPU = re.compile(r"\bGPU-(?P<id>[0-9a-f]{12,16})(?![0-9a-f-])", re.IGNORECASE)
_CONTAINER = re.compile(r"\b[0-9a-f]{64}\b")
# Before lines of a log that rocsteady kept, and of the same in ``watch``.
_STAMP = re.compile(r"^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|\d\d:\d\d:\d\d) ", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,32}m")
_LEAST_SECRET, _MOST_SECRETS = 10, 200  # that are known by their value
_IN_ADDRESS = re.compile(r"://[^/\s:@\"'<>]{0,200}:([^/\s\"'<>@]{1,200})@")
_LEAST_PASSWORD = 8  # in an address, to be known without it
_LONGEST_REMEMBERED, _MOST_REMEMBERED = 200, 20_000
_PLAIN = frozenset({bool, float, int, type(None)})  # that no text is in
_TABLES = (dict, Mapping)  # a dict is known at once, what is like one is not
_LEAST_NAME = 3  # a user called "a" cannot be told from the letter
_NUMBERED = re.compile(r"[0-9]+")
# Stems of host names that mean other things when a number follows.
_COMMON_STEMS = EVERYDAY | {"card", "cpu", "epoch", "node", "rank", "run", "step", "test", "worker"}


@lru_cache(maxsize=4096)  # of stacks the same lines come again and again
def hide_secrets(text: str) -> str:
    """Return ``text`` without passwords, tokens and keys. Names and addresses stay."""
    return _plainly(text, _hide_secrets)


def _hide_secrets(text: str) -> str:
    text = replace_in_records(replace_below(_without_forms(text), _secret), _secret)
    return replace_named(text, _secret)


def _without_forms(text: str) -> str:
    return replace_forms("\n".join(without_keys(text.split("\n"))))


def _plainly(text: str, hide: Callable[[str], str]) -> str:
    """Hide what is secret as if no colours and no times of ours stood between the words."""
    if "\n" not in text or not _STAMP.search(text):
        return _colourless(text, hide) if "\x1b" in text else hide(text)
    lines = text.split("\n")
    stamps = [found.group() if (found := _STAMP.match(line)) else "" for line in lines]
    bare = (line[len(stamp) :] for line, stamp in zip(lines, stamps, strict=True))
    told = _plainly("\n".join(bare), hide).split("\n")
    if len(told) != len(lines):
        return "\n".join(told)
    return "\n".join(stamp + line for stamp, line in zip(stamps, told, strict=True))


def _colourless(text: str, hide: Callable[[str], str]) -> str:
    """Hide what is secret, also where colours stand between a name and its value."""
    plain = _COLOUR.sub("", text)
    told = hide(plain)
    return hide(text) if told == plain else told


def shown_command(words: Sequence[str]) -> str:
    """Return a command as it is shown to people, without passwords, tokens and keys."""
    return shlex.join(map(str, Secrets()._items(words)))  # noqa: SLF001 - of this file


class Secrets:
    """Replaces passwords, tokens and keys. Names and addresses stay."""

    def text(self, text: str) -> str:
        """Return ``text`` without secrets."""
        return hide_secrets(text)

    def value(self, value: object) -> object:
        """Redact every text of a value by itself, and what stands beside a telling name in it."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, _TABLES):
            return self._pairs(value)
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
            return self._items(value)
        return value

    def pair(self, name: str, value: object) -> object:
        """Redact the value that stands beside a name."""
        kind = kind_of(name)
        if kind is None and type(value) in _PLAIN:
            return value
        if kind is None or isinstance(value, bool) or value is None:
            commit = isinstance(value, str) and is_commit(name, value)
            return value if commit else self.value(value)
        if isinstance(value, str):
            return value if harmless(kind, name, value) else self._beside_name(kind, value)
        if kind is Kind.SECRET:
            return REDACTED if isinstance(value, int | float) else self._all(value)
        return self._all(value) if kind is Kind.LIKELY else self.value(value)

    def _pairs(self, pairs: Mapping[object, object]) -> dict[object, object]:
        """Redact a table; of ``{"name": "TOKEN", "value": ...}`` too, as Kubernetes writes it."""
        named = pairs.get("name")
        done: dict[object, object] = {}
        for key, value in pairs.items():
            beside = str(named) if key == "value" and isinstance(named, str) else str(key)
            plain = type(value) in _PLAIN and kind_of(beside) is None
            told = self.text(key) if isinstance(key, str) else key
            done[told] = value if plain else self.pair(beside, value)
        return done

    def _items(self, items: Sequence[object]) -> list[object]:
        """Redact a list; a value may follow its option, and a key may take several lines."""
        texts = all(isinstance(item, str) for item in items)
        words = without_keys([str(item) for item in items]) if texts else items
        done: list[object] = []
        for before, word in zip(("", *words), words, strict=False):
            option = isinstance(before, str) and before.startswith("-") and "=" not in before
            follows = option and isinstance(word, str) and not word.startswith("-")
            done.append(self.pair(str(before), word) if follows else self.value(word))
        if not texts:
            return done
        given = [str(word) for word in done]
        return list(self._below(self._joined(given, " ")))

    def lines(self, lines: Sequence[str]) -> Sequence[str]:
        """Redact lines of one text."""
        return [self.text(line) for line in self._below(lines)]

    def _below(self, lines: Sequence[str]) -> Sequence[str]:
        """Redact a value that stands in a line below its name."""
        named = any(line.rstrip().endswith(_GO_ON) or names_below(line) for line in lines)
        return self._joined(lines, "\n") if named else lines

    def _joined(self, words: Sequence[str], by: str) -> Sequence[str]:
        """Redact what only the words before it give away, as in ``sshpass -p ...``."""
        told = self.text(by.join(words)).split(by)
        return told if len(told) == len(words) else words

    def _all(self, value: object) -> object:
        """Replace every text and number below a name that tells of secrets."""
        if isinstance(value, Mapping):
            return {key: self._all(item) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [self._all(item) for item in value]
        return REDACTED if isinstance(value, str) and value else value

    def _beside_name(self, kind: Kind, value: str) -> str:
        return _secret(kind, value)


class Redactor(Secrets):
    """Knows the names of one machine and replaces them everywhere."""

    def __init__(
        self,
        *,
        homes: Iterable[str],
        users: Iterable[str],
        hosts: Iterable[str],
        secrets: Iterable[str] = (),
    ) -> None:
        self._secrets = set(secrets)
        self._done: dict[str, str] = {}  # the same texts come again and again
        self._serials: dict[str, int] = {}
        self._addresses: dict[str, int] = {}
        # Longest first, so that a home below another home is not cut in half.
        self._homes = sorted(
            {home.replace("\\", "/").rstrip("/") for home in homes} - {"", "/"},
            key=len,
            reverse=True,
        )
        self._users, hidden = _worth_hiding(users), _worth_hiding(hosts)
        stems = sorted(self._users | hidden, key=len, reverse=True)
        self._name = re.compile(
            rf"(?<![A-Za-z0-9])(?:{'|'.join(map(_spelling, stems))})(?![A-Za-z0-9])", re.IGNORECASE
        )
        self._named = bool(stems)

    def text(self, text: str) -> str:
        """Return ``text`` with secrets, names and addresses replaced."""
        done = self._done.get(text)
        if done is None:
            done = _plainly(text, self._text)
            if len(text) <= _LONGEST_REMEMBERED and len(self._done) < _MOST_REMEMBERED:
                self._done[text] = done
        return done

    def _text(self, text: str) -> str:
        for password in passwords_in(text):
            self._remember(password)
        text = _without_forms(text)
        for home in self._homes:
            stand_in = _stand_in(home)
            for spelling in (home, home.replace("/", "\\"), home.replace("/", "\\\\")):
                if spelling in text:
                    text = re.sub(rf"{re.escape(spelling)}(?![A-Za-z0-9_.-])", stand_in, text)
        text = replace_below(replace_folders(text), self._beside_name)
        text = replace_in_records(text, self._beside_name)
        text = replace_named(text, self._beside_name)
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        text = _UUID.sub(lambda match: self._uuid(match.group()), text)
        text = _GPU.sub(lambda match: f"GPU-{self._padded(match['id'], 16)}", text)
        text = _CONTAINER.sub(lambda match: self._padded(match.group(), 64), text)
        text = replace_addresses(text, self._ipv4)
        return self._name.sub(self._whose, text) if self._named else text

    def serial(self, serial: str) -> str:
        """Return a small number that stands for ``serial``; 0 and nothing stay what they are."""
        plain = serial.strip().lower().removeprefix("0x").lstrip("0")
        if not plain:
            return serial
        return str(self._serials.setdefault(plain, len(self._serials) + 1))

    def _beside_name(self, kind: Kind, value: str) -> str:
        if kind is Kind.SERIAL:
            return value if value.isalpha() else self.serial(value)
        if kind is Kind.USER:
            return value if value.lower() in EVERYDAY else USER
        if kind is Kind.HOST:
            name, colon, port = value.partition(":")
            plain = name.lower() in EVERYDAY or is_public(name)
            return value if plain else f"{HOST}{colon}{self.text(port)}"
        if looks_random(value, least=_LEAST_SECRET):
            self._remember(value)
        return _secret(kind, value)

    def _remember(self, secret: str) -> None:
        """Hide a secret from now on where it stands without its name, too."""
        if secret not in self._secrets and len(self._secrets) < _MOST_SECRETS:
            self._secrets.add(secret)
            self._done.clear()

    def _whose(self, match: re.Match[str]) -> str:
        return USER if match.group().lower() in self._users else HOST

    def _uuid(self, uuid: str) -> str:
        return f"00000000-0000-0000-0000-{self._padded(uuid.replace('_', '-'), 12)}"

    def _padded(self, identity: str, width: int) -> str:
        """Return the stand-in of an identity; one that is a stand-in already stays."""
        bare = identity.replace("-", "")
        if bare.isdigit() and bare.startswith("0" * (len(bare) - 6)):
            return f"{int(bare):0{width}d}"
        return f"{int(self.serial(identity)):0{width}d}"

    def _ipv4(self, address: str) -> str:
        number = self._addresses.setdefault(address, len(self._addresses))
        return f"192.0.2.{number % 254 + 1}"


def passwords_in(text: str) -> Iterator[str]:
    """Yield the passwords of addresses, as they stand there and as they are typed."""
    for found in _IN_ADDRESS.finditer(text) if "://" in text else ():
        typed = unquote(found[1])
        if len(typed) >= _LEAST_PASSWORD and like_a_password(typed):
            yield from (found[1], typed)


def _secret(kind: Kind, value: str) -> str:
    if kind not in (Kind.SECRET, Kind.LIKELY) or value.startswith(REDACTED):
        return value
    return REDACTED


def _stand_in(home: str) -> str:
    """Return a home that says as much: one that is lost at a reboot still is."""
    if home[1:2] == ":":
        return f"{home[:2]}/Users/{USER}"
    return f"{TEMPORARY}/{USER}" if home.startswith(f"{TEMPORARY}/") else HOME


def _spelling(name: str) -> str:
    """Return a pattern for a name; of ``node-17`` also for ``node-18``, which is a host as well."""
    stem = _NUMBERED.sub("", name).strip("-._")
    numbered = len(stem) >= _LEAST_NAME and stem not in _COMMON_STEMS
    escaped = re.escape(name)
    return _NUMBERED.sub("[0-9]{1,9}", escaped) if numbered else escaped


def _worth_hiding(names: Iterable[str]) -> set[str]:
    lowered = (name.lower() for name in names)
    return {name for name in lowered if len(name) >= _LEAST_NAME} - EVERYDAY
