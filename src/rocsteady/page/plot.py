"""Plots as SVG: a line with its range, attempts as bars, phases as one bar. No script is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rocsteady.page.markup import Markup, tag
from rocsteady.page.series import Series
from rocsteady.wording import duration

WIDTH, HEIGHT = 820, 150
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 10, 24
INNER = WIDTH - LEFT - RIGHT
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
DAY = 86_400
TICKS = 8  # at most, on the axis of time
NEAR_EDGE = 30
MOST_LABELS = 24  # of marks; more would run into each other


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

    def x(self, at: float) -> float:
        """Return the place of a moment, in the picture."""
        inside = min(max(at, self.begin), self.end)
        return round(LEFT + INNER * (inside - self.begin) / (self.end - self.begin), 1)

    def ticks(self, bottom: float) -> list[Markup]:
        """Draw the axis, with the time since the beginning."""
        whole = self.end - self.begin
        step = next((step for step in STEPS if whole / step <= TICKS), 0)
        step = step or DAY * math.ceil(whole / DAY / TICKS)
        drawn = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis")]
        for number in range(int(whole // step) + 1):
            x = self.x(self.begin + number * step)
            words = duration(number * step) if number else "0"
            drawn += [
                tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis"),
                tag("text", words, x=x, y=bottom + 17, class_="tick", text_anchor=_anchor(x)),
            ]
        return drawn


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
    low, high = min(p.least for p in points), max(p.most for p in points)
    low = min(0.0, low) if from_zero else low
    if high <= low:
        low, high = (low - 1, high + 1) if not from_zero or high < 0 else (low, high or 1.0)
    bottom = HEIGHT - BOTTOM

    def y(value: float) -> float:
        return round(bottom - (bottom - TOP) * (value - low) / (high - low), 1)

    drawn = []
    for value in (low, (low + high) / 2, high):
        at, words = y(value), format_value(value)
        drawn += [
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"),
            tag("text", words, x=LEFT - 6, y=at + 4, class_="tick", text_anchor="end"),
        ]
    for line in series:
        band = [(axis.x(p.at), y(p.most)) for p in line]
        band += [(axis.x(p.at), y(p.least)) for p in reversed(line)]
        drawn.append(tag("polygon", points=_pairs(band), class_="band"))
        drawn.append(
            tag("polyline", points=_pairs((axis.x(p.at), y(p.mean)) for p in line), class_="mean")
        )
        if len(line) == 1:
            drawn.append(
                tag("circle", cx=axis.x(line[0].at), cy=y(line[0].mean), r=2.5, class_="dot")
            )
    drawn += _marks(marks, axis, bottom)
    last = next(reversed(points))
    told = (
        f"{title}: {format_value(min(p.least for p in points))} to"
        f" {format_value(max(p.most for p in points))}, {format_value(last.mean)} at the end"
    )
    data = ";".join(
        f"{max(0.0, p.at - axis.begin):.0f},{format_value(p.mean)}" for line in series for p in line
    )
    picture = _svg(told, HEIGHT, [*drawn, *axis.ticks(bottom)], data=data, span=axis)
    return tag("figure", tag("figcaption", told), picture)


def timeline(spans: Sequence[Span], axis: TimeAxis, marks: Sequence[IncidentMark]) -> Markup:
    """Draw attempts, one after the other, and the incidents between them."""
    height, bottom = 74, 50
    drawn = []
    for span in spans:
        x, end = axis.x(span.begin), axis.x(span.end)
        width = max(1.5, round(end - x, 1))
        drawn.append(
            tag(
                "rect", tag("title", span.title), x=x, y=18, width=width, height=26, rx=3,
                class_=f"span {span.kind}",
            )
        )  # fmt: skip
        if width > 8 * len(span.label) + 4:
            drawn.append(tag("text", span.label, x=round(x + 5, 1), y=35, class_="label"))
    drawn += _marks(marks, axis, bottom, top=14)
    words = f"Timeline: {'; '.join(span.title for span in spans[:40])}"
    return tag("figure", _svg(words, height, [*drawn, *axis.ticks(bottom)]))


def share_bar(shares: Sequence[tuple[str, float]]) -> Markup:
    """Draw parts of a whole as one bar, with a legend that says the same in words."""
    whole = sum(share for _, share in shares) or 1.0
    x, drawn, legend = 0.0, [], []
    for number, (name, share) in enumerate(shares):
        width = WIDTH * share / whole
        percent = _percent(share / whole)
        kind = f"share-{number % 8}"
        drawn.append(
            tag(
                "rect", tag("title", f"{name} {percent}"), x=round(x, 1), y=0,
                width=round(width, 1), height=22, class_=kind,
            )
        )  # fmt: skip
        legend.append(tag("li", tag("span", class_=f"key {kind}"), f"{name} {percent}"))
        x += width
    words = ", ".join(f"{name} {_percent(share / whole)}" for name, share in shares)
    return tag("figure", _svg(words, 22, drawn), tag("ul", *legend, class_="legend"))


def _percent(share: float) -> str:
    return "under 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"  # noqa: PLR2004 - 1 %


def _anchor(x: float) -> str:
    """Keep the words of a tick inside the picture."""
    return "end" if x > WIDTH - NEAR_EDGE else "middle"


def _marks(
    marks: Sequence[IncidentMark], axis: TimeAxis, bottom: float, top: float = TOP
) -> list[Markup]:
    every = -(-len(marks) // MOST_LABELS)  # the n-th has its label
    drawn = []
    for number, mark in enumerate(marks):
        x = axis.x(mark.at)
        label = tag("text", mark.label, x=x, y=top, class_="mark-label", text_anchor="middle")
        line = tag("line", x1=x, x2=x, y1=top + 4, y2=bottom, class_="mark")
        title = tag("title", mark.title)
        drawn.append(tag("g", title, line, label if number % every == 0 else None))
    return drawn


def _svg(
    words: str,
    height: int,
    children: Sequence[Markup],
    data: str = "",
    span: TimeAxis | None = None,
) -> Markup:
    return tag(
        "svg", tag("title", words), *children, viewBox=f"0 0 {WIDTH} {height}", role="img",
        aria_label=words, data_points=data or None,
        data_span=f"{span.end - span.begin:.0f}" if span and data else None,
    )  # fmt: skip


def _pairs(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
