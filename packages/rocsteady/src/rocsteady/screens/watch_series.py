"""What a run measured, for a row of a screen each: time of a step, loss, memory, GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rocsteady.screens.sparkline import sparkline
from rocsteady.store.values import Bucket, Gauge, Intent, paused_between
from rocsteady.wording import duration, size

LOSS, HOST = "loss", "host memory"  # gauges of the journal
READINGS_FOR = 180.0  # seconds; older ones say nothing of now
_OF_GPU = re.compile(r"(GPU \d+) (\w+)")


def of_last_attempt(progress: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """Return the buckets of the last attempt."""
    return tuple(bucket for bucket in progress if bucket.attempt == progress[-1].attempt)


def step_times(buckets: Sequence[Bucket], intents: Sequence[Intent] = ()) -> tuple[float, ...]:
    """Return the mean seconds of a step, a bucket each, without pauses."""
    moved = [(each.last_progress, each.last_step) for each in buckets if each.last_progress]
    return tuple(
        (end - begin - paused_between(intents, begin, end)) / (after - before)
        for (begin, before), (end, after) in pairwise(moved)
        if after > before
    )


def series_rows(
    buckets: Sequence[Bucket], intents: Sequence[Intent], room: int, *, blocks: bool
) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for each thing that was measured; ``room`` is for the curves."""
    losses = [each.gauges[LOSS].mean for each in buckets if LOSS in each.gauges]
    if losses:
        least = min(losses[-room:])  # a curve from its lowest: a loss need not end at 0
        curve = sparkline([loss - least for loss in losses[-room:]], room, blocks=blocks)
        yield "loss", f"{curve} {losses[-1]:.4g}"
    times = step_times(buckets, intents)
    if len(times) > 1:
        drawn = sparkline(times[-room:], room, blocks=blocks)
        slowest = duration(max(times[-room:]))
        yield "step time", f"{drawn} {duration(times[-1])} (slowest {slowest})"


def gauge_rows(buckets: Sequence[Bucket], *, blocks: bool) -> Iterator[tuple[str, str]]:
    """Yield a row for each GPU, and one for the memory of the host, as last measured."""
    last: dict[str, Gauge] = {}
    for bucket in buckets:
        if bucket.start > buckets[-1].start - READINGS_FOR:
            last |= bucket.gauges
    gpus: dict[str, dict[str, Gauge]] = {}
    for name, gauge in last.items():
        if found := _OF_GPU.fullmatch(name):
            gpus.setdefault(found[1], {})[found[2]] = gauge
    for label, gauges in sorted(gpus.items()):
        texts = [
            f"{title}{gauges[name].mean:.0f} {unit}"
            for name, title, unit in (
                ("busy", "busy ", "%"),
                ("temperature", "", "°C" if blocks else "C"),
                ("power", "", "W"),
            )
            if name in gauges
        ]
        if "memory" in gauges:
            texts.append(size(gauges["memory"].mean))
        yield label, "  ".join(texts)
    if HOST in last:
        yield "host", size(last[HOST].mean)
