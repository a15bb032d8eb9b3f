"""When a run leaves an option of its plan for the next one, as the plan's stop rules say.

A rule holds for a limited time from when the option began; after that the option is kept.
"""

from __future__ import annotations

from rocsteady.run.options import RunOptions, StopRule
from rocsteady.store.forecast import fell_after
from rocsteady.store.values import RunRecord, Sample
from rocsteady.wording import duration, plural


class OptionStop:
    """Follows one option, over all its attempts."""

    def __init__(self, options: RunOptions, earlier: RunRecord | None = None) -> None:
        self._options = options
        self._began: float | None = None  # by the wall clock
        self._first: tuple[float, int] | None = None  # when it was at which step
        self._last: tuple[float, int] | None = None
        self.lasted = 0.0  # seconds, of the time that was judged last
        self._begin(options.stop)
        if earlier is None:
            return
        for decision in earlier.decisions:
            if decision.fallback:
                self.other_option(decision.fallback)
        fell = fell_after(earlier.decisions)
        own = [attempt for attempt in earlier.attempts if attempt.number > fell]
        self._began = own[0].started if own else None
        self._failures = sum(row.attempt > fell for row in earlier.failures)

    def other_option(self, number: int) -> None:
        """Know that the attempts from now on use another option, with its own rule."""
        rules = (it.stop for it in self._options.fallbacks if it.number == number)
        self._begin(next(rules, None))

    def _begin(self, rule: StopRule | None) -> None:
        self._rule, self._failures = rule, 0
        self._began = self._first = self._last = None

    def seen(self, sample: Sample) -> None:
        """Take a look at the run into account."""
        if self._began is None:
            self._began = sample.at
        if sample.step:
            self._first = self._first or (sample.at, sample.step)
            self._last = (sample.at, sample.step)

    def failed(self, now: float) -> str:
        """Take a failure into account; return why the option is left, "" if it is kept."""
        self._failures += 1
        rule = self._rule
        if rule is None or self._began is None or now - self._began > rule.within:
            return ""
        if self._failures < rule.failures:
            return ""
        return f"{plural(self._failures, 'failure')} within {duration(rule.within)}"

    def too_slow(self, now: float) -> str:
        """Return why the option is left, once its time is over; "" if it is kept."""
        rule = self._rule
        if rule is None or self._began is None or now - self._began < rule.within:
            return ""
        self._rule, self.lasted = None, rule.within  # it was judged, whatever comes of it
        if rule.least is None or self._rate(now) >= rule.least:
            return ""
        slow = f"{self._rate(now):.3g} steps/s after {duration(rule.within)}"
        return f"{slow}, and the plan asks for {rule.least:.3g}"

    def _rate(self, now: float) -> float:
        """Return the steps a second since the first one was seen, with what restarts cost."""
        if self._first is None or self._last is None or now <= self._first[0]:
            return 0.0
        return max(0, self._last[1] - self._first[1]) / (now - self._first[0])
