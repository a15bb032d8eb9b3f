"""Plots as SVG: a line with its range, attempts as bars, shares as one bar. No script is needed.

A picture is stretched to the width of the page; what is written beside it is HTML and is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rocsteady.report.markup import Markup, tag
from rocsteady.report.series import Series
from rocsteady.wording import duration

WIDTH, HEIGHT = 1000, 100  # of every picture, in its own units
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
DAY = 86_400
TICKS = 8  # at most, on the axis of time
NEAR_EDGE = 0.95  # of the axis; further right, words end at their tick
MOST_LABELS = 24  # of marks; more would run into each other
LEAST_SPAN = 2.0  # of the width, so that a short attempt is seen


class IncidentMark(NamedTuple):
    """A moment to be seen on every plot."""

    at: float
    label: str  # such as "1", the number of an incident
    title: str


class Span(NamedTuple):
    """A bar of the timeline."""

    begin: float
    end: float
    kind: str  # a class of the style sheet
    label: str
    title: str


class TimeAxis:
    """Where a moment lies on a plot."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end = begin, max(end, begin + 1.0)

    @property
    def length(self) -> float:
        """Return how many seconds it shows."""
        return self.end - self.begin

    def x(self, at: float) -> float:
        """Return the place of a moment, in the picture."""
        inside = min(max(at, self.begin), self.end)
        return round(WIDTH * (inside - self.begin) / self.length, 1)

    def ticks(self) -> Markup:
        """Write the time since the beginning below the picture."""
        step = next((step for step in STEPS if self.length / step <= TICKS), 0)
        step = step or DAY * math.ceil(self.length / DAY / TICKS)
        times = [number * step for number in range(int(self.length // step) + 1)]
        return tag(
            "div",
            *(
                tag(
                    "span", duration(time) if time else "0", style=_left(self.x(self.begin + time)),
                    class_="x end" if time / self.length > NEAR_EDGE else "x",
                )
                for time in times
            ),
            aria_hidden="true",
        )  # fmt: skip


def line_plot(  # noqa: PLR0913 - what a plot consists of
    title: str,
    series: Series,
    axis: TimeAxis,
    marks: Sequence[IncidentMark],
    format_value: Callable[[float], str],
    *,
    from_zero: bool = True,
) -> Markup:
    """Draw one quantity: its mean as a line, its range as a band, incidents as marks."""
    points = [point for line in series for point in line]
    lowest, highest = min(p.least for p in points), max(p.most for p in points)
    low, high = min(0.0, lowest) if from_zero else lowest, highest
    if high <= low:
        low, high = (low - 1, high + 1) if not from_zero or high < 0 else (low, high or 1.0)

    def y(value: float) -> float:
        return round(HEIGHT * (high - value) / (high - low), 1)

    scale = (low, (low + high) / 2, high)
    drawn = [tag("line", x1=0, x2=WIDTH, y1=y(at), y2=y(at), class_="grid") for at in scale]
    for line in series:
        band = [(axis.x(p.at), y(p.most)) for p in line]
        band += [(axis.x(p.at), y(p.least)) for p in reversed(line)]
        drawn.append(tag("polygon", points=_pairs(band), class_="band"))
        mean = _pairs((axis.x(p.at), y(p.mean)) for p in line)
        drawn.append(tag("polyline", points=mean, class_="mean"))
        if len(line) == 1:  # a line of no length, with round ends
            drawn.append(tag("path", d=f"M{mean}h0", class_="dot"))
    span = dict.fromkeys((format_value(lowest), format_value(highest)))  # often the same
    words = f"{title}: {' to '.join(span)}"
    words += f", last {format_value(points[-1].mean)}" * (len(span) > 1)
    data = ";".join(
        f"{max(0.0, p.at - axis.begin):.0f},{format_value(p.mean)}" for line in series for p in line
    )
    values = (tag("span", format_value(at), style=f"top:{y(at)}%", class_="y") for at in scale)
    return tag(
        "figure",
        tag("figcaption", words),
        tag(
            "div",
            _svg(words, [*drawn, *_lines(marks, axis)], data=data, span=f"{axis.length:.0f}"),
            tag("div", *values, aria_hidden="true"),
            axis.ticks(),
            _labels(marks, axis),
            class_="plot",
        ),
    )  # fmt: skip


def timeline(spans: Sequence[Span], axis: TimeAxis, marks: Sequence[IncidentMark]) -> Markup:
    """Draw attempts, one after the other, and the incidents between them."""
    drawn, labels = [], []
    for span in spans:
        x = axis.x(span.begin)
        width = max(LEAST_SPAN, round(axis.x(span.end) - x, 1))
        drawn.append(
            tag(
                "rect", tag("title", span.title), x=x, y=0, width=width, height=HEIGHT,
                class_=f"span {span.kind}",
            )
        )  # fmt: skip
        place = f"{_left(x)};width:{100 * width / WIDTH:.4g}%"
        labels.append(tag("span", span.label, style=place, class_="label"))
    words = f"Timeline: {'; '.join(span.title for span in spans[:40])}"
    return tag(
        "figure",
        tag(
            "div",
            _svg(words, [*drawn, *_lines(marks, axis)]),
            tag("div", *labels, aria_hidden="true") if len(spans) <= MOST_LABELS else None,
            axis.ticks(),
            _labels(marks, axis),
            class_="plot timeline",
        ),
    )


def share_bar(shares: Sequence[tuple[str, float]]) -> Markup:
    """Draw seconds of a whole as one bar, with a legend that says the same in words."""
    whole = sum(share for _, share in shares) or 1.0
    x, drawn, legend = 0.0, [], []
    said = [f"{name} {duration(share)} ({_percent(share / whole)})" for name, share in shares]
    for number, (words, (_, share)) in enumerate(zip(said, shares, strict=True)):
        width, kind = WIDTH * share / whole, f"share-{number % 8}"
        drawn.append(
            tag(
                "rect", tag("title", words), x=round(x, 1), y=0, width=round(width, 1),
                height=HEIGHT, class_=kind,
            )
        )  # fmt: skip
        legend.append(tag("li", tag("span", class_=f"key {kind}"), words))
        x += width
    bar = tag("div", _svg(", ".join(said), drawn), class_="bar")
    return tag("figure", bar, tag("ul", *legend, class_="legend"))


def _percent(share: float) -> str:
    return "under 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"  # noqa: PLR2004 - 1 %


def _left(x: float) -> str:
    return f"left:{100 * x / WIDTH:.4g}%"


def _lines(marks: Sequence[IncidentMark], axis: TimeAxis) -> list[Markup]:
    """Draw a line at each mark."""
    places = ((axis.x(mark.at), mark.title) for mark in marks)
    return [
        tag("line", tag("title", title), x1=x, x2=x, y1=0, y2=HEIGHT, class_="mark")
        for x, title in places
    ]


def _labels(marks: Sequence[IncidentMark], axis: TimeAxis) -> Markup | None:
    """Write the labels above the lines; of many, every n-th."""
    chosen = marks[:: max(1, -(-len(marks) // MOST_LABELS))]
    labels = (
        tag("span", mark.label, style=_left(axis.x(mark.at)), class_="number") for mark in chosen
    )
    return tag("div", *labels, aria_hidden="true") if chosen else None


def _svg(words: str, children: Sequence[Markup], data: str = "", span: str = "") -> Markup:
    return tag(
        "svg", tag("title", words), *children, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img",
        preserveAspectRatio="none", aria_label=words, data_points=data or None,
        data_span=span or None,
    )  # fmt: skip


def _pairs(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
