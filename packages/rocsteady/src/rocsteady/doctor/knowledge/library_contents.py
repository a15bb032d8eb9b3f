"""Which names of variables real ROCm libraries hold, by library and version.

``seen_in.toml`` is written by ``tools/rocm_names.py``. It is read only when something asks for it.
"""

from __future__ import annotations

import difflib
from functools import cache
from typing import NamedTuple

from packaging.version import Version

from rocsteady.doctor.knowledge.reader import DataFolder, Knowledge
from rocsteady.model import Value


class Gone(NamedTuple):
    """Where a name is no more, in words, and the first release that was found without it."""

    text: str  # "libamdhip64 6.4.3, last seen in 5.7.1"
    since: str


class SeenIn(Value, frozen=True, kw_only=True):
    """Where each name was seen, and what was looked at."""

    libraries: dict[str, tuple[str, ...]]
    names: dict[str, dict[str, tuple[str, ...]]]


@cache
def load_seen(data: DataFolder | None = None) -> SeenIn:
    data = data or DataFolder()
    content = data.document("seen_in.toml", "libraries", "names", "texts", "code").content

    def places(line: str) -> dict[str, tuple[str, ...]]:
        found = {}
        for part in line.split("; "):
            words = part.split()
            library = " ".join(word for word in words if not word[0].isdigit())
            found[library] = tuple(word for word in words if word[0].isdigit())
        return found

    return SeenIn(
        libraries={name: tuple(line.split()) for name, line in content["libraries"].items()},
        names={name: places(line) for name, line in content["names"].items()},
    )


def gone_from(name: str) -> Gone | None:
    """Return where a name was and is no more; None if it is still there.

    A release between the last with the name and the first without it was not looked at.
    """
    gone: list[tuple[str, str]] = []
    for library, versions in load_seen().names.get(name, {}).items():
        looked_at = load_seen().libraries[library]
        later = looked_at[looked_at.index(versions[-1]) + 1 :]
        if not later:
            return None
        gone.append((f"{library} {later[0]}, last seen in {versions[-1]}", later[0]))
    if not gone:
        return None
    return Gone("; ".join(text for text, _ in gone), max((it for _, it in gone), key=Version))


def is_in_a_library(name: str) -> bool:
    return name in load_seen().names


def nearest(name: str, knowledge: Knowledge, least: float) -> str:
    """Return the real name that is closest; "" if none is at least so close, from 0 to 1."""
    real = [each for each, variable in knowledge.variables.items() if variable.read_by]
    near = difflib.get_close_matches(name, {*real, *load_seen().names}, n=1, cutoff=least)
    return near[0] if near else ""
