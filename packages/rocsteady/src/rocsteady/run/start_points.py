"""From where attempts started, and whether they got past it. Pure."""

from __future__ import annotations

MOST = 3  # attempts from one checkpoint that do not get past it
SAVE_EARLIER_AFTER = 2  # of them


class StartPoints:
    """The attempts in a row that started from the same checkpoint."""

    def __init__(self) -> None:
        self._start: str | None = None  # "": from the beginning; None: no attempt yet
        self._made: list[int] = []  # steps that each of them made
        self._barren = 0  # attempts since one of them got further than all before
        self.save_after: int | None = None  # steps, to get past where others ended

    def ended(self, start: str, made: int, *, progressed: bool) -> None:
        """Take an attempt into account that failed after so many steps of its own."""
        if start != self._start:
            self._start, self._made, self._barren = start, [], 0
        self._made.append(made)
        self._barren = 0 if progressed else self._barren + 1
        if len(self._made) >= SAVE_EARLIER_AFTER and min(self._made):
            least = max(1, min(self._made) // 2)
            self.save_after = min(least, self.save_after or least)

    @property
    def is_stuck(self) -> bool:
        """Tell whether there were enough attempts from one checkpoint."""
        return bool(self._start) and self._barren >= MOST
