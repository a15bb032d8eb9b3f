"""The outlook of a run while it goes: when it will be done, and whether that is past its deadline.

It only says so. A healthy run is never ended for a deadline.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from rocsteady import wording as words
from rocsteady.model import Deadline, Forecast
from rocsteady.run.options import Fallback
from rocsteady.run.telling.announcer import Announcer
from rocsteady.store.forecast import (
    PRIOR_BETWEEN,
    ProgressPoint,
    Restarts,
    due,
    fell_after,
    forecast,
    interval,
    needed,
    points_of,
    totals,
)
from rocsteady.store.values import SAVED_GAUGE, Run, RunRecord, Sample
from rocsteady.wording import moment

MAX_POINTS = 500  # points; every second one is forgotten when there are more
POLL_EVERY = 2.0  # seconds
LATE_SAVES = 50  # by which it is known how often it saves
PACE_MARGIN = 0.9  # of the pace of a trial, on which a run counts
# How long it must look so before it is said: a part of the time that there is, in seconds between.
WAIT_SHARE, SHORTEST_WAIT, LONGEST_WAIT = 0.02, 4.0, 600.0
SURE_FACTOR = 4  # times as soon, where the whole interval says so


class LatenessFilter:
    """Tells a deadline that will be missed from a hiccup. Each change must last longer to count."""

    def __init__(self, started: float, deadline: float) -> None:
        self.late = False
        self._deadline = deadline
        self._wait = min(LONGEST_WAIT, max(SHORTEST_WAIT, WAIT_SHARE * (deadline - started)))
        self._since: float | None = None  # it looks the other way

    def changes(self, now: float, ahead: Forecast) -> bool:
        """Return whether it is now late, or in time again, and was not before."""
        if (ahead.at > self._deadline) == self.late:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        sure = ahead.late <= self._deadline if self.late else ahead.early > self._deadline
        if now - self._since < self._wait / (SURE_FACTOR if sure else 1):
            return False
        self.late, self._wait, self._since = not self.late, 2 * self._wait, None
        return True


class DeadlineMonitor:
    def __init__(  # noqa: PLR0913 - all are keyword arguments
        self,
        run: Run,
        deadline: Deadline | None,
        announcer: Announcer,
        *,
        options: Callable[[], Sequence[Fallback]],  # of the plan, that are left
        resumes: Callable[[], bool],  # else another start has all the steps before it
        between: Callable[[], float | None],  # seconds between two failures here
        earlier: RunRecord | None = None,
        slipped: Callable[[str], None] = lambda _: None,  # is given the sentence, each time
    ) -> None:
        self.due = due(deadline, run.started)
        self.total: int | None = totals(earlier.progress) if earlier else None
        self._run, self._announcer = run, announcer
        self._options, self.can_resume, self._between = options, resumes, between
        self._points = points_of(earlier.progress) if earlier else []
        self._since = fell_after(earlier.decisions) if earlier else 0
        self._slipped = slipped
        self._attempt = 0
        self._apart = 0.0  # seconds, at least, between two points
        self._saved: deque[float] = deque(maxlen=LATE_SAVES)  # when, by the wall clock
        self._looked = 0.0
        self._lateness = LatenessFilter(run.started, self.due) if self.due is not None else None
        self._passed = False  # it was said that the deadline has

    def begin(self, attempt: int) -> None:
        self._attempt = attempt

    def other_option(self) -> None:
        """Measure the pace anew from this attempt, which uses another option."""
        self._since = self._attempt

    @property
    def option_points(self) -> list[ProgressPoint]:
        """How far the run was when, on its present option."""
        return [point for point in self._points if point.attempt > self._since]

    def seen(self, sample: Sample) -> None:
        """Take a look into account; say once that the deadline will be missed."""
        self.total = sample.total if sample.total is not None else self.total
        self._add(ProgressPoint(sample.at, sample.step, self._attempt))
        if SAVED_GAUGE in sample.measured:
            self._saved.append(sample.at)
        if self._lateness is not None and abs(sample.at - self._looked) >= POLL_EVERY:
            self._looked = sample.at
            self._look(sample.at, self._lateness)

    def forecast(self, now: float) -> Forecast | None:
        restarts = Restarts(
            between=self._between() or PRIOR_BETWEEN,
            started=self._run.started,
            saving=interval(self._saved),
        )
        return forecast(self._points, self.total, now=now, restarts=restarts, since=self._since)

    def needs(self) -> float | None:
        """Return the pace that it takes to be done in time, if the present way cannot have it."""
        now = time.time()
        ahead = self.forecast(now)
        if ahead is None or self.due is None or ahead.early <= self.due:
            return None
        return needed(self._left_elsewhere(ahead), self.due, now) / PACE_MARGIN

    def remains(self) -> str:
        """Return what is left of a run that ended, if there is a deadline; "" else."""
        if self.due is None:
            return ""
        now = time.time()
        if self.total is None or not self._points or self._points[-1].step >= self.total:
            return words.until(self.due, now=now)
        ahead = self.forecast(now)
        left = self.total - self._points[-1].step
        rate = ahead.rate if ahead else None
        return words.remains(left, self.total, rate, self.due, now=now)

    def _add(self, point: ProgressPoint) -> None:
        points = self._points
        if not point.step or (points and points[-1][1:] == point[1:]):
            return
        late = points[-2:]
        together = len(late) > 1 and late[0].attempt == late[1].attempt == point.attempt
        if together and late[1].at < late[0].at + self._apart:
            points.pop()
        points.append(point)
        if len(points) > MAX_POINTS:
            del points[1:-1:2]
            self._apart = (points[-1].at - points[0].at) / len(points)

    def _look(self, now: float, lateness: LatenessFilter) -> None:
        ahead = self.forecast(now)
        if ahead is not None and self.due is not None and lateness.changes(now, ahead):
            state = "will miss the deadline at this pace" if lateness.late else "is on time again"
            sentence = f"the run {state}: {words.ahead(ahead, self.due, now=now)}."
            self._announcer.say(sentence)
            if lateness.late:
                self._slipped(sentence)
                self._announcer.say(self._could(ahead, self.due, now))
        elif self.due is not None and now > self.due and not (lateness.late or self._passed):
            self._passed = True
            self._announcer.say(f"the deadline, {moment(self.due, now=now)}, has passed.")

    def _left_elsewhere(self, ahead: Forecast) -> int:
        """Return the steps that another attempt has before it."""
        return ahead.left if self.can_resume() else self.total or ahead.left

    def _could(self, ahead: Forecast, deadline: float, now: float) -> str:
        """Return what the user could do. rocsteady does nothing."""
        left = self._left_elsewhere(ahead)
        ends = [
            (now + left / (option.rate * PACE_MARGIN), option)
            for option in self._options()
            if option.rate
        ]
        faster = [(end > deadline, option.number, option) for end, option in ends if end < ahead.at]
        if not faster:
            return "the run continues. To find faster options: rocsteady plan"
        late, _, option = min(faster, key=lambda each: each[:2])
        what = "is faster" if late else "would be on time"
        return (
            f"the run continues. Option {option.number} of the plan, {option.title}, {what}:"
            f" rocsteady stop {self._run.name}; rocsteady run --plan {option.number}"
        )
