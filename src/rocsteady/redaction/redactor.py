"""Takes out of texts what names a person, a host or one piece of hardware.

The same secret always becomes the same stand-in, so that what belonged together still does:
partitions of one card keep one serial, a path and the variable that names it still agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

USER, HOST, HOME = "user", "host", "/home/user"
TEMPORARY = "/tmp"  # noqa: S108 - recognised, not written to
REDACTED = "<redacted>"

_TOKENS = re.compile(
    r"""
    \b(?:(?:hf|gh[oprsu]|github_pat|glpat|xox[abprs]|sk|pk)[-_]|AKIA|ASIA)[A-Za-z0-9_-]{16,}
    | \beyJ[A-Za-z0-9_-]{10,999}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*  # a JSON web token
    | (?<=://)[^/\s@]+(?=@)                          # a token or user:password in an address
    | (?i:(?<=token=)|(?<=password=)|(?<=secret=)|(?<=api_key=)|(?<=apikey=))[^\s&"']+
    """,
    re.VERBOSE,
)
_UUID = re.compile(r"[0-9a-f]{8}([-_])(?:[0-9a-f]{4}\1){3}[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE)
_MAC = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)
_ADDRESS = re.compile(r"\b(?!127\.)(?:\d{1,3}\.){3}\d{1,3}(?=[:/\s,]|$)")
_CONTAINER = re.compile(r"\b[0-9a-f]{64}\b")
_LEAST_NAME = 3  # a user called "a" cannot be told from the letter
# Names that say nothing about a person or a place, and without which paths lose their meaning.
_EVERYDAY = frozenset({
    "amd", "amdgpu", "bin", "conda", "cuda", "dev", "docker", "etc", "gpu", "home", "host", "kfd",
    "kubernetes", "lib", "linux", "local", "localhost", "opt", "podman", "proc", "python",
    "pytorch", "rocm", "root", "shm", "site-packages", "sys", "torch", "triton", "ubuntu", "user",
    "users", "usr", "venv", "windows",
})  # fmt: skip


class Redactor:
    """Knows the names of one machine and replaces them everywhere."""

    def __init__(self, *, homes: Iterable[str], users: Iterable[str], hosts: Iterable[str]) -> None:
        self._serials: dict[str, int] = {}
        # Longest first, so that a home below another home is not cut in half.
        self._homes = sorted(
            {home.replace("\\", "/").rstrip("/") for home in homes} - {"", "/"},
            key=len,
            reverse=True,
        )
        self._names = {
            **dict.fromkeys(_worth_hiding(users), USER),
            **dict.fromkeys(_worth_hiding(hosts), HOST),
        }
        alternatives = "|".join(
            re.escape(name) for name in sorted(self._names, key=len, reverse=True)
        )
        self._name = re.compile(
            rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])", re.IGNORECASE
        )

    def text(self, text: str) -> str:
        """Return ``text`` with names, tokens and addresses replaced."""
        for home in self._homes:
            stand_in = _stand_in(home)
            for spelling in (home, home.replace("/", "\\")):
                text = re.sub(rf"{re.escape(spelling)}(?![A-Za-z0-9_.-])", stand_in, text)
        text = _TOKENS.sub(REDACTED, text)
        text = _MAC.sub("00:00:00:00:00:00", text)
        text = _ADDRESS.sub("192.0.2.1", text)
        text = _UUID.sub(lambda match: self._uuid(match.group()), text)
        text = _CONTAINER.sub(lambda match: f"{int(self.serial(match.group())):064d}", text)
        return (
            self._name.sub(lambda match: self._names.get(match.group().lower(), USER), text)
            if self._names
            else text
        )

    def serial(self, serial: str) -> str:
        """Return a small number that stands for ``serial``; 0 and nothing stay what they are."""
        plain = serial.strip().lower().removeprefix("0x").lstrip("0")
        if not plain:
            return serial
        return str(self._serials.setdefault(plain, len(self._serials) + 1))

    def _uuid(self, uuid: str) -> str:
        return f"00000000-0000-0000-0000-{int(self.serial(uuid)):012d}"


def _stand_in(home: str) -> str:
    """Return a home that says as much: one that is lost at a reboot still is."""
    if home[1:2] == ":":
        return f"{home[:2]}/Users/{USER}"
    return f"{TEMPORARY}/{USER}" if home.startswith(f"{TEMPORARY}/") else HOME


def _worth_hiding(names: Iterable[str]) -> set[str]:
    lowered = (name.lower() for name in names)
    return {name for name in lowered if len(name) >= _LEAST_NAME} - _EVERYDAY
