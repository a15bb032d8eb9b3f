"""Takes out of texts what is secret, or names a person, a host or one piece of hardware.

The same secret always becomes the same stand-in, so that what belonged together still does:
partitions of one card keep one serial, a path and the variable that names it still agree.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from ipaddress import AddressValueError, IPv6Address
from pathlib import Path
from urllib.parse import unquote

from rocsteady.store.redaction import patterns
from rocsteady.store.redaction.pairs import replace_named
from rocsteady.store.redaction.patterns import (
    REDACTED,
    TELLING,
    Kind,
    harmless,
    kind_of,
    replace_forms,
)

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
_LEAST_SECRET, _LEAST_PASSWORD, _MOST_SECRETS = 10, 8, 200  # that are known by their value
_LONGEST_REMEMBERED, _MOST_REMEMBERED = 200, 20_000
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
        told = _plainly(plain, hide)
        return hide(text) if told == plain else told
    stamps = [found.group() if (found := _STAMP.match(line)) else "" for line in text.split("\n")]
    if not any(stamps):
        return hide(text)
    told = hide(_STAMP.sub("", text))
    lines = told.split("\n")
    whole = len(lines) == len(stamps)
    return "\n".join(map("".join, zip(stamps, lines, strict=True))) if whole else told


def shown_command(words: Sequence[str]) -> str:
    """Return a command as it is shown to people, without passwords, tokens and keys."""
    return shlex.join(map(str, Secrets().items(words)))


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
        """Redact the value that stands beside a name."""
        kind = kind_of(name)
        if kind is None or isinstance(value, bool) or value is None:
            commit = isinstance(value, str) and patterns.is_commit(name, value)
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

    def lines(self, lines: Sequence[str]) -> Sequence[str]:
        """Redact lines of one text."""
        return [self.text(line) for line in self._together(lines, "\n")]

    def _together(self, parts: Sequence[str], by: str) -> Sequence[str]:
        """Redact what only the parts before it give away."""
        told = self.text(by.join(parts)).split(by)
        return told if len(told) == len(parts) else parts

    def _beside_name(self, kind: Kind, value: str) -> str:
        return _secret(kind, value)


class Redactor(Secrets):
    """Knows the names of one machine and replaces them everywhere."""

    def __init__(self, *, homes: Names, users: Names, hosts: Names, secrets: Names = ()) -> None:
        self._secrets = set(secrets)
        self._cached = lru_cache(_MOST_REMEMBERED)(self._text)  # the same lines come again
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
        """Return ``text`` with secrets, names and addresses replaced."""
        return _plainly(text, self._cached if len(text) <= _LONGEST_REMEMBERED else self._text)

    def _text(self, text: str) -> str:
        for password in passwords_in(text):
            self._remember(password)
        text = replace_forms(text)
        for home in self._homes:
            for spelling in (home, home.replace("/", "\\"), home.replace("/", "\\\\")):
                if spelling in text:
                    whole = rf"{re.escape(spelling)}(?![A-Za-z0-9_.-])"
                    text = re.sub(whole, _stand_in(home), text)
        text = replace_named(self._places(text, folders=True), self._beside_name)
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        text = self._places(text, folders=False)
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
        if patterns.is_random(value, least=_LEAST_SECRET):
            self._remember(value)
        return _secret(kind, value)

    def _remember(self, secret: str) -> None:
        """Hide a secret from now on where it stands without its name, too."""
        if secret not in self._secrets and len(self._secrets) < _MOST_SECRETS:
            self._secrets.add(secret)
            self._cached.cache_clear()

    def _places(self, text: str, *, folders: bool) -> str:
        """Replace folders of people, or all other places and identities."""
        for place, check in _all_places():
            if (check == "user") is folders:
                text = place.sub(lambda found: _with(found, self._shown(found, check)), text)  # noqa: B023 - used here
        return text

    def _shown(self, found: re.Match[str], check: str) -> str:
        """Return what may be told of a name."""
        name = found["name"]
        if check == "user":
            kept = name.lower() in patterns.words("places", "kept_users") or is_everyday(name)
            return name if kept else USER
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
    places = {key: [environment.get(name, "") for name in patterns.words("variables", key)]
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
    secrets = [value for name, value in environment.items() if patterns.names_secret(name, value)]
    secrets += [password for value in environment.values() for password in passwords_in(value)]
    return Redactor(homes=homes, users=users, hosts=hosts, secrets=secrets)


def passwords_in(text: str) -> Iterator[str]:
    """Yield the passwords of addresses, as they stand there and as they are typed."""
    for found in _PASSWORD.finditer(text) if "://" in text else ():
        typed = unquote(found[1])
        if len(typed) >= _LEAST_PASSWORD and patterns.is_password(typed):
            yield from (found[1], typed)


def _all(value: object) -> object:
    """Replace every text below a name that tells of secrets."""
    if isinstance(value, Mapping):
        return {key: _all(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_all(item) for item in value]
    return REDACTED if isinstance(value, str) and value else value


def _secret(kind: Kind, value: str) -> str:
    return value if kind not in TELLING or value.startswith(REDACTED) else REDACTED


def _stand_in(home: str) -> str:
    """Return a home that says as much: one that is lost at a reboot still is."""
    if home[1:2] == ":":
        return f"{home[:2]}/Users/{USER}"
    return f"{TEMPORARY}/{USER}" if home.startswith(f"{TEMPORARY}/") else "/home/user"


def _spelling(name: str) -> str:
    """Return a pattern for a name; of ``node-17`` also for ``node-18``, which is a host as well."""
    stem = _NUMBERED.sub("", name).strip("-._")
    common = is_everyday(stem) or stem in patterns.words("places", "common_stems")
    numbered = len(stem) >= _LEAST_NAME and not common
    return _NUMBERED.sub("[0-9]{1,9}", re.escape(name)) if numbered else re.escape(name)


def _worth_hiding(names: Names) -> set[str]:
    return {name.lower() for name in names if len(name) >= _LEAST_NAME and not is_everyday(name)}


def is_everyday(name: str) -> bool:
    """Return whether a name says nothing about a person or a place."""
    return name.lower() in patterns.words("places", "everyday")


def _is_public(host: str) -> bool:
    """Return whether a host is one that anyone may know."""
    labels = host.lower().rstrip(".").split(".")
    ends = (".".join(labels[index:]) for index in range(len(labels)))
    return any(end in patterns.words("places", "public") for end in ends)


@cache
def _all_places() -> tuple[tuple[re.Pattern[str], str], ...]:
    places = patterns.data()["place"]
    return tuple((re.compile(place["pattern"]), place["check"]) for place in places)


def _with(found: re.Match[str], name: str) -> str:
    before, after = found.start("name") - found.start(), found.end("name") - found.start()
    return found[0][:before] + name + found[0][after:]


def _is_no_address(found: re.Match[str]) -> bool:
    """Tell a version, or an address that says nothing, from an address."""
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
    """Tell a host from a module, a file and a version."""
    labels = name.lower().split(".")
    end, long = labels[-1], len(labels) > 2  # noqa: PLR2004 - a, b and the end
    sure = end in patterns.words("places", "ends") or (
        end in patterns.words("places", "countries") and long
    )
    marked = any(mark.isdigit() or mark == "-" for mark in labels[0])
    unsure = end in patterns.words("places", "unsure_ends") and long and marked
    return HOST if (sure or unsure) and not _is_public(name) else name
