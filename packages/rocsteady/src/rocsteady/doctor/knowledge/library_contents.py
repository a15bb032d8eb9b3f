"""What real ROCm libraries hold: names of variables, texts and GPU code, by library and version.

``seen_in.toml`` is written by ``tools/rocm_names.py``. It is read only when something asks for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache

from rocsteady.doctor.knowledge.reader import DataFolder, Knowledge
from rocsteady.model import Value

LOOKED_AT = ("HIP", "ROCr", "MIOpen", "RCCL", "rocBLAS", "hipBLASLt", "hipcc")
Places = Mapping[str, tuple[str, ...]]  # library to versions


class SeenIn(Value, frozen=True, kw_only=True):
    """Where each name and text was seen, and what was looked at."""

    libraries: dict[str, tuple[str, ...]]
    names: dict[str, dict[str, tuple[str, ...]]]
    texts: dict[str, dict[str, tuple[str, ...]]]
    code: dict[str, tuple[str, ...]]  # "rocBLAS 7.2.4" to gfx names

    def where(self, name: str, read_by: str) -> str:
        """Say in which libraries a variable was found, for somebody who doubts our list."""
        places = self.names.get(name)
        if places:
            return "; ".join(f"{library} {' and '.join(its)}" for library, its in places.items())
        if any(reader in read_by for reader in LOOKED_AT):
            return "not found in any library looked at"
        return "in a part that could not be looked at"

    def gone_from(self, name: str) -> str:
        """Say where a name was and is no more: "libamdhip64 after 5.7.1"; "" if it is there."""
        places = self.names.get(name, {})
        gone = [
            f"{library} after {versions[-1]}"
            for library, versions in places.items()
            if versions[-1] != self.libraries[library][-1]
        ]
        return ", ".join(gone) if len(gone) == len(places) else ""


@cache
def load_seen(data: DataFolder | None = None) -> SeenIn:
    """Read the table."""
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


def gone_from(name: str) -> str | None:
    """Return "libamdhip64 after 5.7.1", "" if it is still there, None if it was never seen."""
    seen = load_seen()
    return seen.gone_from(name) if name in seen.names else None


def nearest(name: str, knowledge: Knowledge, least: float) -> str:
    """Return the real name that is closest; "" if none is at least so close, from 0 to 1."""
    real = [each for each, variable in knowledge.variables.items() if variable.read_by]
    near = difflib.get_close_matches(name, {*real, *load_seen().names}, n=1, cutoff=least)
    return near[0] if near else ""
