"""Names a rank that is steadily slower than the others: they wait for it at each step.

By its own time only: data and forward. The backward pass has the wait for the others in it. A rank
that waits in its forward pass is told from a slow one by its backward pass, which is no shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from rocsteady.hangs.values import Heartbeat
from rocsteady.wording import duration

WINDOW = 10.0  # seconds between two comparisons, at least
FEW_STEPS = 5  # of every rank in that time, or it becomes longer
TIMES = 3  # comparisons in a row
SHARE = 0.25  # of a step that it takes longer than any other
BEHIND = 2  # steps by which the ranks of one job may be apart at a look
DATA, FORWARD = "data", "compute"


class _Pace(NamedTuple):
    """The seconds that a rank spent on each of its steps."""

    rank: int
    steps: int
    spent: dict[str, float]
    waiting: float


class SlowRank:
    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._since = float("-inf")
        self._before: dict[int, Heartbeat] = {}  # by process, at the last comparison
        self._found: list[tuple[int, str]] = []  # rank and what it is slow in, each time

    def look(self, now: float, heartbeats: Iterable[Heartbeat]) -> None:
        """Compare the ranks of this host once in a while; say once which holds up the others."""
        if len(self._found) >= TIMES or now < self._since + WINDOW:
            return
        beats = {it.pid: it for it in heartbeats if it.rank is not None and not it.ended}
        same = self._before.keys() == beats.keys()
        paces = [_pace(beats[pid], before) for pid, before in self._before.items() if same]
        if any(pace.steps < FEW_STEPS for pace in paces):
            return  # yet
        found = _slowest(paces, now - self._since)
        self._since, self._before = now, beats
        self._found = [it for it in self._found if found is not None and it == found[:2]]
        if found is None:
            return
        rank, what, own, others = found
        self._found.append((rank, what))
        if len(self._found) == TIMES:
            self._say(
                f"slow: rank {rank} takes {duration(own)} of each step for its {what}, the other"
                f" ranks of this host at most {duration(others)}; they wait for it."
            )


def _pace(now: Heartbeat, before: Heartbeat) -> _Pace:
    steps = now.step - before.step
    spent = {
        name: (each - before.seconds_in[name]) / max(1, steps)
        for name, each in now.seconds_in.items()
    }
    return _Pace(now.rank or 0, steps, spent, spent["backward"] + spent["optimizer"])


def _slowest(paces: list[_Pace], seconds: float) -> tuple[int, str, float, float] | None:
    """Return the rank that takes much longer than any other, for what, and how long both take."""
    steps = [pace.steps for pace in paces]
    if len(paces) < 2 or max(steps) - min(steps) > BEHIND:  # noqa: PLR2004 - nobody to compare with
        return None
    for phase, what in ((DATA, "data"), (FORWARD, "forward pass")):
        *others, slow = sorted(paces, key=lambda pace: pace.spent[phase])
        own, most = slow.spent[phase], others[-1].spent[phase]
        waited = min(pace.waiting for pace in others) - slow.waiting >= (own - most) / 2
        waits = others[0].spent[DATA] if phase == DATA else waited  # one alone may have a loader
        if waits and own - most >= SHARE * seconds / slow.steps:
            return slow.rank, what, own, most
    return None
