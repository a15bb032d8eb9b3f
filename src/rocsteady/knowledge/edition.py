"""Of when the knowledge is, and what it goes up to."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.version import Version

from rocsteady.errors import KnowledgeError
from rocsteady.knowledge.reader import DATA, Knowledge, _document, _typed
from rocsteady.model import Value

OLD = 90  # days
LOWEST_END = re.compile(r"<(\d+)\.(\d+)")


class Edition(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One state of the knowledge."""

    date: str  # ISO 8601; a later one replaces an earlier one
    kernel: str  # the newest Linux that any entry speaks of


def load_edition(folder: Path = DATA) -> Edition:
    """Read the file."""
    content = _document(folder / "edition.toml", "date", "kernel").content
    edition = _typed(content, Edition, "edition.toml")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", edition.date):
        raise KnowledgeError("edition.toml: date: expected a day such as 2026-11-16")
    return edition


def newest_torch(knowledge: Knowledge) -> Version:
    """Return the newest minor release of torch that a row of wheels covers."""
    ends = (LOWEST_END.search(each.torch) for each in (*knowledge.wheels, *knowledge.indexes))
    last = max(((int(end[1]), int(end[2])) for end in ends if end), default=(0, 1))
    return Version(f"{last[0]}.{last[1] - 1}")


def newest_rocm(knowledge: Knowledge) -> Version:
    """Return the newest ROCm that a row of wheels covers."""
    rows = (*knowledge.wheels, *knowledge.indexes)
    return max((Version(each.rocm) for each in rows), default=Version("0"))
