"""When a run leaves an option of its plan for being too slow, as the plan's stop rules say."""

from __future__ import annotations

from rocsteady.run.options import StopRule
from rocsteady.store.forecast import fell_after
from rocsteady.store.values import RunRecord, Sample
from rocsteady.wording import duration


class OptionPace:
    """The steps of one option, over all its attempts."""

    def __init__(self, earlier: RunRecord | None = None) -> None:
        self._first: tuple[float, int] | None = None  # when it was at which step
        self._last: tuple[float, int] | None = None
        self._judged = False
        fell = fell_after(earlier.decisions) if earlier else 0
        for bucket in earlier.progress if earlier else ():
            if bucket.attempt > fell and bucket.first_progress and bucket.last_progress:
                self._first = self._first or (bucket.first_progress, bucket.first_step)
                self._last = bucket.last_progress, bucket.last_step
        self._resumed = self._last[0] if self._last else 0.0  # what was before has been judged

    def begin(self) -> None:
        """Start anew with another option."""
        self._first = self._last = None
        self._judged = False

    def seen(self, sample: Sample) -> None:
        """Take a look at the run into account."""
        if sample.step:
            self._first = self._first or (sample.at, sample.step)
            self._last = (sample.at, sample.step)

    def too_slow(self, rule: StopRule, began: float, now: float) -> str:
        """Return why the option is left, once its time is over; "" if it is kept."""
        if self._judged or now - began < rule.within:
            return ""
        before, self._judged = self._resumed - began >= rule.within, True  # whatever comes of it
        if before:
            return ""
        if rule.least is None or self._rate(now) >= rule.least:
            return ""
        slow = f"{self._rate(now):.3g} steps/s after {duration(rule.within)}"
        return f"{slow}, and the plan asks for {rule.least:.3g}"

    def _rate(self, now: float) -> float:
        """Return the steps a second since the first one was seen, with what restarts cost."""
        if self._first is None or self._last is None or now <= self._first[0]:
            return 0.0
        return max(0, self._last[1] - self._first[1]) / (now - self._first[0])
