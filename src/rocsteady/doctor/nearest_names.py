"""Which real variable a name that nothing reads is closest to, and where a name was last seen."""

from __future__ import annotations

import difflib

from rocsteady.knowledge.library_contents import load_seen
from rocsteady.knowledge.reader import Knowledge


def gone_from(name: str) -> str | None:
    """Return "libamdhip64 after 5.7.1", "" if it is still there, None if it was never seen."""
    seen = load_seen()
    return seen.gone_from(name) if name in seen.names else None


def nearest(name: str, knowledge: Knowledge, least: float) -> str:
    """Return the real name that is closest; "" if none is at least so close, from 0 to 1."""
    real = [each for each, variable in knowledge.variables.items() if variable.read_by]
    near = difflib.get_close_matches(name, {*real, *load_seen().names}, n=1, cutoff=least)
    return near[0] if near else ""
