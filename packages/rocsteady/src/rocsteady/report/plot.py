"""Plots: where each line, bar and label of a picture lies. ``templates/plots.html.j2`` draws them.

A picture is stretched to the width of the page; what is written beside it is HTML and is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rocsteady.model import Value
from rocsteady.report.plot_points import Plot
from rocsteady.report.story import NO_CHANGES, Story, spoken_title
from rocsteady.wording import duration

WIDTH, HEIGHT = 1000, 100  # of every picture, in its own units
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
DAY = 86_400
TICKS = 8  # at most, on the axis of time
NEAR_EDGE = 0.95  # of the axis; further right, a label ends at its tick
LABELS = 24  # at most; more would run into each other
NARROWEST = 2.0  # bar, so that a short attempt is seen
COLORS = 8  # of a bar of shares
SHARE_COLORS = {  # the same as on the timeline
    "training": "training",
    "starting": "starting",
    "stalled and restarting": "stalled",
    "repeating steps": "repeating",
    "paused": "paused",
}
TITLES = 40  # of bars, at most, in the description of a timeline


class Label(Value, frozen=True, kw_only=True):
    text: str
    position: float  # percent of the width, or of the height
    width: float = 0.0  # percent
    at_edge: bool = False


class Bar(Value, frozen=True, kw_only=True):
    x: float
    width: float
    color: str  # a class of the style sheet
    title: str


class AttemptCurve(Value, frozen=True, kw_only=True):
    """The line of one attempt: points as SVG has them."""

    mean: str
    band: str
    is_dot: bool


class Picture(Value, frozen=True, kw_only=True):
    title: str  # for a screen reader, and for the caption
    incidents: tuple[tuple[float, str], ...]  # where each is, and its title
    incident_labels: tuple[Label, ...]
    ticks: tuple[Label, ...]


class LinePlot(Picture, frozen=True, kw_only=True):
    grid: tuple[Label, ...]
    curves: tuple[AttemptCurve, ...]
    points: str  # for the script: "seconds,text;..."
    seconds: str  # that the picture is wide


class Timeline(Picture, frozen=True, kw_only=True):
    """Attempts, one after the other, each in its segments."""

    bars: tuple[Bar, ...]
    bar_labels: tuple[Label, ...]


class TimeAxis:
    """Where a moment lies on a plot."""

    def __init__(self, story: Story) -> None:
        run = story.record.run
        self.begin, self.end = run.started, max(run.ended or story.at, run.started + 1.0)
        self.length = self.end - self.begin  # seconds

    def x(self, at: float) -> float:
        inside = min(max(at, self.begin), self.end)
        return round(WIDTH * (inside - self.begin) / self.length, 1)

    def ticks(self) -> tuple[Label, ...]:
        step = next((step for step in STEPS if self.length / step <= TICKS), 0)
        step = step or DAY * math.ceil(self.length / DAY / TICKS)
        times = [number * step for number in range(int(self.length // step) + 1)]
        return tuple(
            Label(
                text=duration(time) if time else "0",
                position=_percent_of_width(self.x(self.begin + time)),
                at_edge=time / self.length > NEAR_EDGE,
            )
            for time in times
        )


def line_plot(plot: Plot, story: Story) -> LinePlot:
    axis, text = TimeAxis(story), plot.unit.text
    points = [point for line in plot.series for point in line]
    lowest, highest = min(p.least for p in points), max(p.most for p in points)
    low, high = min(0.0, lowest) if plot.from_zero else lowest, highest
    if high <= low:
        low, high = (low - 1, high + 1) if not plot.from_zero or high < 0 else (low, high or 1.0)

    def y(value: float) -> float:
        return round(HEIGHT * (high - value) / (high - low), 1)

    curves = []
    for line in plot.series:
        band = [(axis.x(p.at), y(p.most)) for p in line]
        band += [(axis.x(p.at), y(p.least)) for p in reversed(line)]
        mean = _pairs((axis.x(p.at), y(p.mean)) for p in line)
        curves.append(AttemptCurve(mean=mean, band=_pairs(band), is_dot=len(line) == 1))
    span = dict.fromkeys((text(lowest), text(highest)))  # often the same
    title = f"{plot.title}: {' to '.join(span)}"
    title += f", last {text(points[-1].mean)}" * (len(span) > 1)
    lines, line_labels = _incidents(story, axis)
    return LinePlot(
        title=title,
        incidents=lines,
        incident_labels=line_labels,
        ticks=axis.ticks(),
        grid=tuple(Label(text=text(at), position=y(at)) for at in (low, (low + high) / 2, high)),
        curves=tuple(curves),
        points=";".join(f"{max(0.0, p.at - axis.begin):.0f},{text(p.mean)}" for p in points),
        seconds=f"{axis.length:.0f}",
    )


def timeline(story: Story) -> Timeline:
    """Lay out the attempts in their segments, and the incidents between them."""
    axis = TimeAxis(story)
    bars, labels, titles = [], [], []
    for attempt in story.attempts:
        end = attempt.ended or axis.end
        changed = f" ({attempt.settings})" * (attempt.settings != NO_CHANGES)
        title = f"try {attempt.number}{changed}: {attempt.outcome}"
        titles.append(title)
        x = axis.x(attempt.started)
        width = max(NARROWEST, round(axis.x(end) - x, 1))
        bars.append(
            Bar(x=x, width=width, color="training" if attempt.goes_on else "stalled", title=title)
        )
        for segment in attempt.segments:
            begin = axis.x(segment.begin)
            inside = round(axis.x(segment.end) - begin, 1)
            took = f"{segment.kind} for {duration(segment.end - segment.begin)}"
            about = f"try {attempt.number}, {took}"
            bars.append(Bar(x=begin, width=inside, color=segment.kind, title=about))
        label = attempt.settings if attempt.settings != NO_CHANGES else f"try {attempt.number}"
        labels.append(
            Label(
                text=label,
                position=_percent_of_width(x),
                width=_percent_of_width(width),
            )
        )
    lines, line_labels = _incidents(story, axis)
    return Timeline(
        title=f"Timeline: {'; '.join(titles[:TITLES])}",
        incidents=lines,
        incident_labels=line_labels,
        ticks=axis.ticks(),
        bars=tuple(bars),
        bar_labels=tuple(labels) if len(labels) <= LABELS else (),
    )


def share_bar(shares: Sequence[tuple[str, float]]) -> tuple[Bar, ...]:
    """Lay out seconds of a whole as one bar; the titles are its legend."""
    whole = sum(share for _, share in shares) or 1.0
    x, bars = 0.0, []
    for number, (name, share) in enumerate(shares):
        width = WIDTH * share / whole
        title = f"{name} {duration(share)} ({percent(share / whole)})"
        color = SHARE_COLORS.get(name, f"share-{number % COLORS}")
        bars.append(Bar(x=round(x, 1), width=round(width, 1), color=color, title=title))
        x += width
    return tuple(bars)


def _incidents(
    story: Story, axis: TimeAxis
) -> tuple[tuple[tuple[float, str], ...], tuple[Label, ...]]:
    """Return a line for each incident, and its number above it; of many, every n-th."""
    incidents = story.record.incidents
    lines = tuple((axis.x(each.at), spoken_title(each)) for each in incidents)
    labels = tuple(
        Label(text=str(each.number), position=_percent_of_width(axis.x(each.at)))
        for each in incidents[:: max(1, -(-len(incidents) // LABELS))]
    )
    return lines, labels


def percent(share: float) -> str:
    return "under 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"  # noqa: PLR2004 - 1 %


def _percent_of_width(x: float) -> float:
    return float(f"{100 * x / WIDTH:.4g}")


def _pairs(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
