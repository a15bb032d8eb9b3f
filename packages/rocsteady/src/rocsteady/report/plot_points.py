"""What a run measured over time, as points that a plot can hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from msgspec.structs import replace

from rocsteady.model import Value
from rocsteady.store.values import SAVED_GAUGE, AttemptRecord, Bucket, Intent, paused_between
from rocsteady.wording import YEAR, size

HIGHEST_PLOTTED = 1e100  # that is plotted
POINTS = 500  # of a plot, at most: it is about 800 pixels wide


class PlotPoint(NamedTuple):
    at: float
    least: float
    most: float
    mean: float


Series = tuple[tuple[PlotPoint, ...], ...]  # a line for each attempt: none joins two of them


class Unit(Enum):
    RATE = "rate"
    BYTES = "bytes"
    PERCENT = "%"
    WATTS = "W"
    CELSIUS = "°C"
    HERTZ = "Hz"
    NUMBER = "number"

    def text(self, value: float) -> str:
        match self:
            case Unit.BYTES:
                return size(value)
            case Unit.HERTZ:
                return f"{value / 1e6:,.0f} MHz"
            case Unit.RATE:
                return f"{value:.3g}"
            case Unit.NUMBER:
                return f"{value:.4g}"
            case _:
                return f"{value:.0f} {self.value}"


UNITS = {"memory": Unit.BYTES, "busy": Unit.PERCENT, "power": Unit.WATTS,
         "temperature": Unit.CELSIUS, "clock": Unit.HERTZ}  # fmt: skip


class Plot(Value, frozen=True, kw_only=True):
    title: str
    unit: Unit
    series: Series
    gpu: str = ""  # that it was measured on

    @property
    def from_zero(self) -> bool:
        """Return whether its scale begins at zero: a loss need not end there."""
        return self.unit is not Unit.NUMBER


def plots(
    progress: Sequence[Bucket], attempts: Sequence[AttemptRecord], intents: Sequence[Intent]
) -> tuple[Plot, ...]:
    buckets = in_attempts(progress, attempts)
    found = [Plot(title="Steps per second", unit=Unit.RATE, series=rates(buckets, intents))]
    found += [
        Plot(
            title=f"{name[:1].upper()}{name[1:]}",
            unit=UNITS.get(name.rpartition(" ")[2], Unit.NUMBER),
            series=gauge(buckets, name),
            gpu=name.rpartition(" ")[0] if name.startswith("GPU ") else "",
        )
        for name in gauge_names(buckets)
    ]
    return tuple(plot for plot in found if any(plot.series))  # not what is nothing but NaN


def phase_seconds(progress: Iterable[Bucket]) -> tuple[tuple[str, float], ...]:
    """Return how long the training process was in each phase, longest first."""
    spent: dict[str, float] = {}
    for bucket in progress:
        for phase, seconds in bucket.seconds_in.items():
            if 0 <= seconds < YEAR:  # nor is it NaN, as in a damaged journal
                spent[phase] = spent.get(phase, 0.0) + seconds
    return tuple(sorted(spent.items(), key=lambda pair: -pair[1])) if any(spent.values()) else ()


def in_attempts(buckets: Iterable[Bucket], attempts: Iterable[AttemptRecord]) -> tuple[Bucket, ...]:
    """Cut each bucket to the time of its attempt: it is as wide as the clock's minutes are."""
    spans = {each.number: (each.started, each.ended or math.inf) for each in attempts}
    found = []
    for bucket in buckets:
        begun, ended = spans.get(bucket.attempt, (bucket.start, math.inf))
        start, end = max(bucket.start, begun), min(bucket.start + bucket.width, ended)
        found.append(replace(bucket, start=start, width=max(0, round(end - start))))
    return tuple(found)


def gauge(buckets: Iterable[Bucket], name: str) -> Series:
    found = (
        (bucket.attempt, PlotPoint(_middle(bucket), seen.least, seen.most, seen.mean))
        for bucket in buckets
        if (seen := bucket.gauges.get(name)) is not None
        and all(
            abs(value) < HIGHEST_PLOTTED for value in (seen.least, seen.most, seen.mean)
        )  # nor NaN
    )
    return _lines(found)


def rates(buckets: Iterable[Bucket], intents: Sequence[Intent] = ()) -> Series:
    """Return steps a second, from the last progress in one bucket to that in the next, unpaused.

    The first bucket of an attempt gives none: it has the start, and the jump to where it resumed.
    """
    last: dict[int, tuple[int, float]] = {}
    found = []
    for bucket in buckets:
        if bucket.last_progress is None:
            continue
        step, at = last.get(bucket.attempt, (bucket.last_step, bucket.last_progress))
        last[bucket.attempt] = bucket.last_step, bucket.last_progress
        paused = paused_between(intents, at, bucket.last_progress)
        steps, seconds = bucket.last_step - step, bucket.last_progress - at - paused
        if steps > 0 and seconds > 0:
            rate = steps / seconds
            found.append((bucket.attempt, PlotPoint(_middle(bucket), rate, rate, rate)))
    return _lines(found)


def gauge_names(buckets: Iterable[Bucket]) -> tuple[str, ...]:
    """Return what was measured over time; a saved step is a moment."""
    found = dict.fromkeys(name for bucket in buckets for name in bucket.gauges)
    shown = (name for name in found if name != SAVED_GAUGE)
    return tuple(sorted(shown, key=lambda name: name != "loss"))  # it is looked for first


def _middle(bucket: Bucket) -> float:
    if bucket.first_progress is not None and bucket.last_progress is not None:
        return (bucket.first_progress + bucket.last_progress) / 2
    return bucket.start + bucket.width / 2


def _lines(found: Iterable[tuple[int, PlotPoint]]) -> Series:
    lines: dict[int, list[PlotPoint]] = {}
    for attempt, point in found:
        lines.setdefault(attempt, []).append(point)
    most = max(2, POINTS // max(1, len(lines)))
    return tuple(_thinned(line, most) for line in lines.values())


def _thinned(points: Sequence[PlotPoint], most: int) -> tuple[PlotPoint, ...]:
    """Merge neighbours; the lowest and the highest of them stay visible."""
    if len(points) <= most:
        return tuple(points)
    size = -(-len(points) // most)
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return tuple(
        PlotPoint(
            at=(group[0].at + group[-1].at) / 2,
            least=min(point.least for point in group),
            most=max(point.most for point in group),
            mean=sum(point.mean for point in group) / len(group),
        )
        for group in groups
    )
