"""Which of the processes that wrote a heartbeat page are still alive.

A page outlives its process. What a command does after its training process has ended is ordinary
work, so pages of processes that are gone must not take part in a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocsteady.hangs.values import Heartbeat
from rocsteady.system import procfs


class LiveProcesses:
    """Remembers when each process of one attempt was born, so that a reused pid is not mistaken."""

    def __init__(self) -> None:
        self._births: dict[int, int] = {}
        self._beats: dict[int, int] = {}  # when a process was last seen alive, or beat since then

    def among(self, heartbeats: Iterable[Heartbeat]) -> tuple[Heartbeat, ...]:
        """Return the heartbeats of processes that are alive, or that may be.

        A rank that is gone stays as long as others of its group live: they may wait for it.
        """
        beats = tuple(heartbeats)
        gone = {beat.pid for beat in beats if self._is_gone(beat)}
        ranks = {beat.rank for beat in beats if beat.pid not in gone and beat.rank is not None}
        return tuple(
            beat
            for beat in beats
            if beat.pid not in gone or (ranks and beat.rank is not None and beat.rank not in ranks)
        )

    def _is_gone(self, beat: Heartbeat) -> bool:
        """Tell a process that has ended from one whose pid means nothing here, as in a container.

        Such a one has never been seen under this pid, and it beats until its own code is done.
        """
        if beat.pid in self._births and self._beats.get(beat.pid) != beat.beats and not beat.ended:
            self._beats[beat.pid] = beat.beats  # it beat since it was last seen: no need to look
            return False
        birth = _birth(beat.pid)
        if birth is not None and self._births.setdefault(beat.pid, birth) == birth:
            self._beats[beat.pid] = beat.beats
            return False
        known = beat.pid in self._births and self._beats.get(beat.pid) == beat.beats
        return known or beat.ended


def _birth(pid: int) -> int | None:
    """Return when a living process was started; None if it has ended or cannot be seen."""
    try:
        stat = procfs.stat(pid)
    except (OSError, ValueError, IndexError):
        return None
    return None if stat.dead else stat.start
