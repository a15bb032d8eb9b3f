"""What looks at an attempt besides the judgment of whether it hangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.values import Heartbeat
from rocsteady.run.telling.announcer import Announcer

Seen = TypeVar("Seen")


class Look(NamedTuple):
    at: float  # by the monotonic clock
    verdict: Verdict
    step: int | None
    heartbeats: Sequence[Heartbeat]
    tree: Callable[[], Sequence[int]]  # its processes
    inspected: bool  # there are snapshots since the last progress


class Watchers(Generic[Seen]):
    """Several that look at the same; one that fails is dropped alone, and named."""

    def __init__(
        self, announcer: Announcer, watchers: Mapping[str, Callable[[Seen], object]]
    ) -> None:
        self._announcer = announcer
        self._watchers = dict(watchers)  # by what a run is without, if one is dropped

    def look(self, seen: Seen) -> None:
        for name, watcher in tuple(self._watchers.items()):
            try:
                watcher(seen)
            except Exception as error:  # noqa: BLE001 - it costs this watcher, never the run
                del self._watchers[name]
                self._announcer.bug(f"the run continues without {name}", error)
