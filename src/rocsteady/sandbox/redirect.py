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

from rocsteady.errors import RocsteadyError
from rocsteady.untrusted_file import read_regular

MOST_TEXT = 8 << 20  # bytes of a file that is looked through; larger ones hold data
LOOKED_AT = 8192  # bytes in which a text has no zero
SHOWN = 200  # characters of a line


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
        self._copy = str(copy)
        places = {str(project), os.path.realpath(project)} - {"/", str(copy)}
        home = environment.get("HOME", "").rstrip("/")
        below = [place[len(home) :] for place in places if home and place.startswith(f"{home}/")]
        homes = [f"{spelt}{rest}" for spelt in ("~", "$HOME", "${HOME}") for rest in below]
        self._spellings = sorted((*places, *homes), key=len, reverse=True)
        self._escaped = [place.replace("/", "\\/") for place in places]
        words = "|".join(map(re.escape, self._spellings))
        # Not in the middle of another path, and not the beginning of another name.
        self._pattern = re.compile(rf"(?:(?<![\w./~$}}-])|(?<=file://))(?:{words})(?![\w.-])")

    def text(self, text: str) -> str:
        """Return a text whose paths lead into the copy."""
        return self._pattern.sub(lambda _: self._copy, text) if self._has(text) else text

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

    def _has(self, text: str) -> bool:
        return any(each in text for each in self._spellings)

    def _lines(self, path: str, text: str, *, escaped: bool) -> Iterator[PathLine]:
        for number, line in enumerate(text.split("\n"), 1):
            found = any(each in line for each in self._escaped) if escaped else self._has(line)
            if found:
                yield PathLine(path, number, line)


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
