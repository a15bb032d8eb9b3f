"""Progress as aggregates: a bucket a minute, finer ones at first, and coarser ones as they age.

The size of a journal follows time, not steps: a month of training is a few thousand rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from math import isfinite
from typing import TypeVar

from msgspec.structs import replace

from rocsteady.store.database import put, select
from rocsteady.store.values import SAVED_GAUGE, Bucket, Gauge, Sample

MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds
FINE, FINE_FOR = 1, 10 * MINUTE  # an attempt begins with these, so that a short one has a curve
# How wide buckets are, and until what age: a day of minutes, a fortnight of ten minutes, ...
LADDER = ((FINE, HOUR), (MINUTE, DAY), (10 * MINUTE, 14 * DAY), (HOUR, 120 * DAY), (DAY, None))
K = TypeVar("K")
WRITE_EVERY = 5.0  # seconds; what a killed supervisor may lose of its progress
WRITE_FINE_EVERY = 2.0  # the same while buckets are fine


class Meter:
    """Folds samples of one attempt into buckets."""

    def __init__(self, run: int, attempt: int, began: float | None = None) -> None:
        self.run, self.attempt = run, attempt
        self._began = began  # None: with the first sample
        self._bucket: Bucket | None = None
        self._finished: list[Bucket] = []  # since the last time that some were to be written
        self._last: Sample | None = None
        self._written = 0.0

    def add(self, sample: Sample) -> tuple[Bucket, ...]:
        """Take a sample; return the buckets that should now be written, perhaps not for good."""
        self._began = sample.at if self._began is None else self._began
        minute = sample.at // MINUTE * MINUTE
        width = FINE if minute - self._began < FINE_FOR else MINUTE  # changes with a minute
        start = sample.at // width * width
        # A clock that was set back does not reopen a bucket.
        if self._bucket is None or start > self._bucket.start:
            if self._bucket is not None:
                self._finished.append(self._bucket)
            self._bucket = self._new(start, width, sample)
        self._bucket = self._grown(self._bucket, sample)
        self._last = sample
        wait = WRITE_EVERY if width > FINE else WRITE_FINE_EVERY
        if abs(sample.at - self._written) < wait:
            return ()
        self._written = sample.at
        return self.current()

    def current(self) -> tuple[Bucket, ...]:
        """Return what is not yet written, or may have grown since."""
        finished, self._finished = self._finished, []
        now = () if self._bucket is None else (self._bucket,)
        return tuple(_rounded(bucket) for bucket in (*finished, *now))

    def _new(self, start: float, width: int, sample: Sample) -> Bucket:
        before = sample if self._last is None else self._last
        return Bucket(
            run=self.run,
            attempt=self.attempt,
            start=start,
            width=width,
            first_step=before.step,
            last_step=before.step,
        )

    def _grown(self, bucket: Bucket, sample: Sample) -> Bucket:
        last = self._last
        passed = 0.0 if last is None else max(0.0, sample.at - last.at)
        moved = last is not None and sample.step != last.step and sample.step > sample.began_at
        earlier = {} if last is None else last.seconds_in
        spent = {
            phase: seconds - earlier.get(phase, 0.0)
            if seconds >= earlier.get(phase, 0.0)
            else seconds  # another process, which counts from 0
            for phase, seconds in sample.seconds_in.items()
        }
        return replace(
            bucket,
            last_step=sample.step,
            total=sample.total if sample.total is not None else bucket.total,
            first_progress=sample.at
            if moved and bucket.first_progress is None
            else bucket.first_progress,
            last_progress=sample.at if moved else bucket.last_progress,
            quiet=max(bucket.quiet, sample.quiet),
            seconds_in=_sum((bucket.seconds_in, spent)),
            seconds_as=_sum((bucket.seconds_as, {sample.verdict: passed})),
            gauges=_gauges((bucket.gauges, _readings(sample)))
            if sample.measured
            else bucket.gauges,
        )


def merged(buckets: Sequence[Bucket], *, start: float, width: int) -> Bucket:
    """Make one bucket of several of one attempt, in the order of time."""
    first, last = buckets[0], buckets[-1]
    begun = [b.first_progress for b in buckets if b.first_progress is not None]
    ended = [b.last_progress for b in buckets if b.last_progress is not None]
    whole = replace(
        first,
        start=start,
        width=width,
        last_step=last.last_step,
        total=last.total if last.total is not None else first.total,
        first_progress=min(begun, default=None),
        last_progress=max(ended, default=None),
        quiet=max(bucket.quiet for bucket in buckets),
        seconds_in=_sum(bucket.seconds_in for bucket in buckets),
        seconds_as=_sum(bucket.seconds_as for bucket in buckets),
        gauges=_gauges(bucket.gauges for bucket in buckets),
    )
    return _rounded(whole)


def age(connection: sqlite3.Connection, run: int, now: float) -> None:
    """Merge the buckets of a run that are old enough into wider ones."""
    for (width, keep), (wider, _) in pairwise(LADDER):
        if keep is None:
            continue
        before = (now - keep) // wider * wider  # only whole wider buckets
        old = select(
            connection,
            Bucket,
            "WHERE run = ? AND width = ? AND start < ? ORDER BY attempt, start",
            run,
            width,
            before,
        )
        key = lambda bucket: (bucket.attempt, bucket.start // wider * wider)  # noqa: B023, E731 - used at once
        for (_, start), group in groupby(old, key):
            put(merged(list(group), start=start, width=wider))(connection)
        connection.execute(
            "DELETE FROM progress WHERE run = ? AND width = ? AND start < ?", (run, width, before)
        )


def _sum(parts: Iterable[Mapping[K, float]]) -> dict[K, float]:
    total: dict[K, float] = {}
    for part in parts:
        for name, seconds in part.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def _readings(sample: Sample) -> dict[str, Gauge]:
    """Make gauges of single readings. What is not finite has no place on a scale."""
    return {
        name: Gauge(least=value, most=value, mean=value, count=1)
        for name, value in sample.measured.items()
        if isfinite(value)
    }


def _gauges(parts: Iterable[Mapping[str, Gauge]]) -> dict[str, Gauge]:
    total: dict[str, Gauge] = {}
    for part in parts:
        for name, gauge in part.items():
            known = total.get(name)
            total[name] = gauge if known is None else _both(known, gauge)
    return total


def _both(one: Gauge, other: Gauge) -> Gauge:
    count = one.count + other.count
    mean = one.mean + (other.mean - one.mean) * (other.count / count)
    return Gauge(
        least=min(one.least, other.least), most=max(one.most, other.most), mean=mean, count=count
    )


def _rounded(bucket: Bucket) -> Bucket:
    """Keep milliseconds, and leave out what took no time."""

    def rounded(parts: Mapping[K, float]) -> dict[K, float]:
        near = {name: round(seconds, 3) for name, seconds in parts.items()}
        return {name: seconds for name, seconds in near.items() if seconds}

    gauges = {
        name: replace(
            gauge,
            least=_significant(gauge.least),
            most=_significant(gauge.most),
            mean=_significant(gauge.mean),
        )
        if name != SAVED_GAUGE
        else gauge
        for name, gauge in bucket.gauges.items()
    }
    return replace(
        bucket,
        seconds_in=rounded(bucket.seconds_in),
        seconds_as=rounded(bucket.seconds_as),
        gauges=gauges,
    )


def _significant(value: float) -> float:
    """Keep six digits: a bucket is a row, and its rows are most of a journal."""
    return float(f"{value:.6g}")
