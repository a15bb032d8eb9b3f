"""What real ROCm libraries hold: names of variables, texts and GPU code, by library and version.

``seen_in.toml`` is written by ``tools/rocm_names.py``. It is read only when something asks for it.
"""

from __future__ import annotations

import difflib
from functools import cache
from typing import NamedTuple

from packaging.version import Version

from rocsteady.doctor.knowledge.reader import DataFolder, Knowledge
from rocsteady.model import Value

LOOKED_AT = ("HIP", "ROCr", "MIOpen", "RCCL", "rocBLAS", "hipBLASLt", "hipcc")


class Gone(NamedTuple):
    """Where a name is no more, in words, and the first release that was found without it."""

    text: str  # "libamdhip64 6.4.3, last seen in 5.7.1"
    since: str


class SeenIn(Value, frozen=True, kw_only=True):
    """Where each name and text was seen, and what was looked at."""

    libraries: dict[str, tuple[str, ...]]
    names: dict[str, dict[str, tuple[str, ...]]]
    texts: dict[str, dict[str, tuple[str, ...]]]
    code: dict[str, tuple[str, ...]]  # "rocBLAS 7.2.4" to gfx names

    def where(self, name: str, read_by: str) -> str:
        """Name the libraries in which a variable was found, for somebody who doubts our list."""
        places = self.names.get(name)
        if places:
            return "; ".join(f"{library} {' and '.join(its)}" for library, its in places.items())
        if any(reader in read_by for reader in LOOKED_AT):
            return "not found in any library looked at"
        return "in a part that could not be looked at"

    def gone_from(self, name: str) -> Gone | None:
        """Return where a name was and is no more; None if it is still there.

        A release between the last with the name and the first without it was not looked at.
        """
        places = self.names.get(name, {})
        gone: list[tuple[str, str]] = []
        for library, versions in places.items():
            looked_at = self.libraries[library]
            later = looked_at[looked_at.index(versions[-1]) + 1 :]
            if not later:
                return None
            gone.append((f"{library} {later[0]}, last seen in {versions[-1]}", later[0]))
        if not gone:
            return None
        return Gone("; ".join(text for text, _ in gone), max((it for _, it in gone), key=Version))


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
        texts={text: places(line) for text, line in content["texts"].items()},
        code={name: tuple(line.split()) for name, line in content["code"].items()},
    )


# Which real variable a name that nothing reads is closest to, and where a name was last seen.


def gone_from(name: str) -> Gone | None:
    return load_seen().gone_from(name)


def is_in_a_library(name: str) -> bool:
    return name in load_seen().names


def nearest(name: str, knowledge: Knowledge, least: float) -> str:
    """Return the real name that is closest; "" if none is at least so close, from 0 to 1."""
    real = [each for each, variable in knowledge.variables.items() if variable.read_by]
    near = difflib.get_close_matches(name, {*real, *load_seen().names}, n=1, cutoff=least)
    return near[0] if near else ""
