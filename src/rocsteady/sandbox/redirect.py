"""Absolute paths into a project's folder, where its script runs in a copy and must not leave it.

They are looked for in the command, in the environment and in the copied text files, and lead into
the copy afterwards. A path that a script puts together from parts cannot be found this way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rocsteady.errors import RocsteadyError
from rocsteady.untrusted_file import read_regular

MOST_TEXT = 8 << 20  # bytes of a file that is looked through; larger ones hold data
LOOKED_AT = 8192  # bytes in which a text has no zero
SHOWN = 200  # characters of a line
MOST_PLACES = 20_000  # folders that are asked whether they lead into the project
DEEPEST = 64  # folders of a path
ESCAPES = ("\\/", "\\u002f", "\\u002F", "\\x2f", "\\x2F")  # of a slash

_HOMES = ("~", "$HOME", "${HOME}")
# Not in the middle of another path.
_BEFORE = r"(?<![\w./~$}-])|(?<=file://)|(?<=^-\w)|(?<=[\s'\"]-\w)"
_ABSOLUTE = re.compile(
    rf"(?:{_BEFORE})(?:~|\$HOME|\$\{{HOME\}})?"
    r"(?:/|(?<!:)/{2,})[^\s'\"`,;:=()\[\]{}<>|&#?*\\/][^\s'\"`,;:=()\[\]{}<>|&#?*\\]*"
)


class PathLine(NamedTuple):
    """A line of a file that has the path in it."""

    file: str  # from the project's folder
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.text.strip()[:SHOWN]}"


class LeadsBackError(RocsteadyError):
    """A path into the user's own folder that cannot be made to lead into the copy."""


class Redirection:
    """Makes paths into a project lead into its copy."""

    def __init__(self, project: Path, copy: Path, environment: Mapping[str, str]) -> None:
        self._copy, self._real = str(copy), os.path.realpath(project)
        self._ends = ("..", self._real.rpartition("/")[2])  # of a path to the project itself
        self._known: dict[str, str | None] = {}  # where the copy has what folder
        self._home = home = environment.get("HOME", "").rstrip("/")
        places = _names(project, environment, home) - {"/", str(copy)}
        below = [place[len(home) :] for place in places if home and place.startswith(f"{home}/")]
        homes = [f"{spelt}{rest}" for spelt in _HOMES for rest in below]
        self._escaped = [place.replace("/", escape) for place in places for escape in ESCAPES]
        plain = {*places, *homes}
        # The copy has the folder's name, and needs the same spelling where that has a space.
        self._spellings = {
            **{spell(place): spell(self._copy) for place in plain for spell in (quote, _for_shell)},
            **dict.fromkeys(plain, self._copy),
        }
        words = "|".join(map(_pattern, sorted(self._spellings, key=len, reverse=True)))
        # Not the beginning of another name.
        self._pattern = re.compile(rf"(?:{_BEFORE})(?:{words})(?![\w.-])")

    def text(self, text: str) -> str:
        """Return a text whose paths lead into the copy."""
        return _ABSOLUTE.sub(self._by_detour, self._pattern.sub(self._led, text))

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment whose paths lead into the copy."""
        return {name: self.text(value) for name, value in environment.items()}

    def files(self, paths: Iterable[str]) -> tuple[PathLine, ...]:
        """Redirect what the copied text files say; return the lines that were changed.

        What cannot be redirected is refused, with the line, before anything is started.
        """
        changed: list[PathLine] = []
        for path in sorted(paths):
            copied = Path(self._copy, path)
            text = _text(copied)
            if text is None:
                continue
            if any(each in text for each in self._escaped):
                (line, *_) = self._lines(path, text, escaped=True)
                raise LeadsBackError(
                    f"{line.file}:{line.number}: an absolute path into this folder, written in a"
                    f" way that cannot be redirected: {line.text.strip()[:SHOWN]}"
                )
            told = self.text(text)
            if told != text:
                changed += self._lines(path, text, escaped=False)
                _rewrite(copied, told)
        return tuple(changed)

    def _led(self, found: re.Match[str]) -> str:
        return self._spellings.get(found.group(), self._copy)

    def _by_detour(self, found: re.Match[str]) -> str:
        """Lead a path into the copy that comes to the project by links or by ``..``."""
        path = found.group()
        for spelt in _HOMES:
            path = self._home + path[len(spelt) :] if path.startswith(f"{spelt}/") else path
        if path.count("/") > DEEPEST:
            return found.group()
        folder, _, name = path.rpartition("/")
        led = self._leads(folder) if folder else None
        if led is None:
            # Names of data have a dot, and there are thousands of them.
            may = name in self._ends or ("." not in name and os.path.islink(path))  # noqa: PTH114
            return (self._copied(path) if may else None) or found.group()
        return f"{led}/{name}"

    def _leads(self, place: str) -> str | None:
        """Return where the copy has a folder; None for one that is not in the project."""
        if place not in self._known and len(self._known) < MOST_PLACES:
            parent, _, name = place.rpartition("/")
            led = self._leads(parent) if parent else None
            self._known[place] = self._copied(place) if led is None else f"{led}/{name}"
        return self._known.get(place)

    def _copied(self, place: str) -> str | None:
        real = os.path.realpath(place)
        inside = f"{real}/".startswith(f"{self._real}/")
        return self._copy + real[len(self._real) :] if inside else None

    def _lines(self, path: str, text: str, *, escaped: bool) -> Iterator[PathLine]:
        for number, line in enumerate(text.split("\n"), 1):
            if any(each in line for each in self._escaped) if escaped else self.text(line) != line:
                yield PathLine(path, number, line)


def _names(project: Path, environment: Mapping[str, str], home: str) -> set[str]:
    """Return the paths of a folder: also those by which links lead to it, as shells know them."""
    real = os.path.realpath(project)
    found = {str(project), real}
    for name in ("PWD", "OLDPWD"):
        place = environment.get(name, "")
        if place.startswith("/") and os.path.realpath(place) == real:
            found.add(place.rstrip("/"))
    behind = os.path.realpath(home) if home else "/"
    if behind != "/" and real.startswith(f"{behind}/"):
        found.add(home + real[len(behind) :])
    return found - {""}


def _for_shell(path: str) -> str:
    return path.replace(" ", "\\ ")


def _pattern(path: str) -> str:
    """Match a path, whatever number of slashes is between its names."""
    first, *rest = map(re.escape, path.split("/"))
    between = r"/+(?:\./+)*"
    if first:
        return between.join((first, *rest))
    return r"(?:/|(?<!:)/{2,})(?:\./+)*" + between.join(rest)  # an address has two slashes as well


def _text(path: Path) -> str | None:
    """Return the content of a text file; None for anything else."""
    try:
        content = read_regular(path, MOST_TEXT, follow=False)
    except OSError:
        return None
    return None if b"\0" in content[:LOOKED_AT] else content.decode("utf-8", "surrogateescape")


def _rewrite(path: Path, text: str) -> None:
    """Write a file of the copy anew. It stays as old as it was: the script did not write it."""
    facts = path.stat()
    try:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    except OSError as error:
        raise LeadsBackError(f"{path}: cannot be redirected: {error.strerror}") from None
