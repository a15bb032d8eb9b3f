"""Which checkpoint of a framework to go on from: the newest one that is whole.

Frameworks take the newest by its name, and write into a folder where they will look for it: after a
kill in mid-save the next start fails, or goes on from a mixture.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rocsteady_train.loop import supervisor_link

EVERYTHING = sys.maxsize  # bytes whose checksums are read: they are about to be loaded anyway

log = logging.getLogger("rocsteady")
_told: set[str] = set()


def newest_whole(
    found: Sequence[tuple[int, Path]], what_is_wrong: Callable[[Path], str]
) -> Path | None:
    """Return the one with the highest number that is whole, and log each that is passed over.

    If the supervisor has chosen one of them, those with a higher number are passed over too.
    """
    chosen = supervisor_link.resume_from()
    limit = next(
        ((n, path) for n, path in found if chosen is not None and _same(path, chosen)), None
    )
    for number, path in sorted(found, reverse=True):
        wrong = what_is_wrong(path)
        if not wrong and limit is not None and number > limit[0]:
            wrong = f"is newer than {limit[1].name}, which was asked for"
        if not wrong:
            return path
        _say_once(f"{path} {wrong}; it is skipped")
    return None


def _same(path: Path, chosen: Path) -> bool:
    return path.resolve() == chosen.resolve()


def _say_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        log.warning("rocsteady: %s.", text)
