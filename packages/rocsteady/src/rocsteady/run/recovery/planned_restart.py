"""Restarting before a failure that comes again and again: right after a save, if that loses less.

A process that runs out of memory after about 40 steps loses what it did since its last save, each
time. If it is ended right after that save, it loses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rocsteady.hangs.values import Heartbeat
from rocsteady.model import Value

LEAST_FAILURES = 3  # alike
SPREAD = 2.0  # times the fewest steps that one of them came: more is no rule
LEAST_GAIN = 1.02  # times the pace
NEVER = 1 << 62  # steps
IN_A_ROW = 8  # planned restarts, then it is seen whether it still fails


class PastFailure(Value, frozen=True, kw_only=True):
    """One attempt that failed as the others did."""

    made: int  # steps
    saves: tuple[int, ...]  # steps that it had made by then
    seconds: float  # of a step
    restart: float  # seconds that it did not train


class PlannedRestart(Value, frozen=True, kw_only=True):
    """When an attempt is restarted before it fails."""

    after: int  # steps: with the next save
    fails_after: int  # steps, at the earliest: what is done by then need not be restarted
    on_request: bool  # the script saves when it is asked to: rocsteady_train.Loop


def plan_restart(
    failures: Sequence[PastFailure], planned: int, *, on_request: bool
) -> PlannedRestart | None:
    """Return when the next attempt is best restarted; ``planned``: so many were, in a row."""
    after = None if planned >= IN_A_ROW else best_restart(failures, on_request=on_request)
    if after is None:
        return None
    earliest = min(failure.made for failure in failures)
    return PlannedRestart(after=after, fails_after=earliest, on_request=on_request)


def best_restart(failures: Sequence[PastFailure], *, on_request: bool) -> int | None:
    """Return the steps, by what would have been fastest so far; None if waiting for it was."""
    made = [failure.made for failure in failures]
    if len(made) < LEAST_FAILURES or max(made) > SPREAD * min(made):
        return None
    if on_request:
        steps = set(range(1, max(made)))
    else:
        steps = {save for failure in failures for save in failure.saves}
    paces = {step: _pace(failures, step, on_request=on_request) for step in steps}
    best = max(paces, key=lambda step: (paces[step], -step), default=0)
    waited = _pace(failures, NEVER, on_request=on_request)
    return best if paces and paces[best] > LEAST_GAIN * waited else None


def _pace(failures: Sequence[PastFailure], step: int, *, on_request: bool) -> float:
    """Return the steps a second that would not have been lost with a restart after that step."""
    steps, seconds = 0, 0.0
    for failure in failures:
        saves = (*failure.saves, step) if on_request else failure.saves
        ended = min((save for save in saves if step <= save < failure.made), default=None)
        steps += max(failure.saves, default=0) if ended is None else ended
        made = failure.made if ended is None else ended + 1
        seconds += made * failure.seconds + failure.restart
    return steps / seconds if seconds else 0.0


class SaveWatch:
    """The saves of one attempt, and whether it is time to restart it."""

    def __init__(
        self,
        plan: PlannedRestart | None,  # None: it is only watched
        newest: Callable[[], float],  # when the newest whole checkpoint was written, by the clock
        ask: Callable[[], None],  # for a save
    ) -> None:
        self._plan, self._newest, self._ask = plan, newest, ask
        self.saves: list[int] = []  # steps that were made by then
        self._saving = 0.0  # seconds of saving so far
        self._last = 0.0  # when it last saved
        self._looked = time.time()
        self._reached: float | None = None  # when enough steps were made, by the clock
        self._saved: int | None = None  # steps, when a whole checkpoint was there

    def look(self, heartbeats: Sequence[Heartbeat]) -> bool:
        """Return whether it saved since the last look, and take that into account."""
        made = max((beat.step for beat in heartbeats), default=0)
        saving = sum(beat.seconds_in.get("checkpoint", 0.0) for beat in heartbeats)
        last = max((beat.saved or 0.0 for beat in heartbeats), default=0.0)
        saved = saving > self._saving or last > self._last
        self._saving, self._last = saving, last
        if saved and made not in self.saves:
            self.saves.append(made)
        return saved

    def is_time(self, heartbeats: Sequence[Heartbeat], left: int | None) -> bool:
        """Take a look; return whether what was saved is enough, and the script has gone on.

        ``left``: steps to the end of the job, which it may come to before it fails.
        """
        made = max((beat.step for beat in heartbeats), default=0)
        saved = self.look(heartbeats)
        before, self._looked = self._looked, time.time()
        plan = self._plan
        if plan is None or made < plan.after:
            return False
        if left is not None and made + left <= plan.fails_after:
            return False
        if self._reached is None:
            self._reached = before
            if plan.on_request:
                self._ask()
        if self._saved is None:
            if (saved or plan.on_request) and self._newest() >= self._reached:
                self._saved = made
            return False
        return made > self._saved
