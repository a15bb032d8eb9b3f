"""What each rank waits for while no step is made: from who watches a run to ``rocsteady watch``.

A file beside the heartbeats, in memory: a disk that hangs must not hold up who watches.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rocsteady.model import RankRecord, Sign, Value
from rocsteady.typed_values import read_json

if TYPE_CHECKING:
    from rocsteady.hangs.judgment.verdict import Verdict

NAME = "ranks.json"
RECORD_BYTES = 1 << 20  # bytes


class RankWaits(Value, frozen=True, kw_only=True):
    """The ranks of this host; none while steps are made."""

    ranks: tuple[RankRecord, ...] = ()
    why: str = ""  # which of them holds up the others; "": that cannot be told


class RankWaitsFile:
    def __init__(self, pages: Path | None) -> None:
        self._path = None if pages is None else pages.parent / NAME
        self._written = RankWaits()

    def update(self, verdict: Verdict) -> None:
        stands_out = verdict.blame is not None and verdict.blame.sign is not Sign.NONE
        several = verdict.ranks if len(verdict.ranks) > 1 else ()
        why = verdict.blame.why if verdict.blame and stands_out and several else ""
        found = RankWaits(ranks=several, why=why)
        if self._path is None or found == self._written:
            return
        self._written = found
        with contextlib.suppress(OSError):  # nobody sees it, then
            unfinished = self._path.with_suffix(".new")
            unfinished.write_bytes(msgspec.json.encode(found))
            unfinished.replace(self._path)


def read_waits(pages: Path | None) -> RankWaits:
    """Read what was written last; nothing if that cannot be read."""
    if pages is None:
        return RankWaits()
    return read_json(pages.parent / NAME, RankWaits, RECORD_BYTES, follow=False) or RankWaits()
