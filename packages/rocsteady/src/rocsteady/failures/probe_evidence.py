"""Which remedies probes speak for: here the one way went wrong, and the other did not."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rocsteady.model import Observation, ProbeOutcome

ATTENTION, LOADER, COMPILE = "attention-backward", "loader", "compile"
_FUSED = re.compile(r"\b(flash|efficient)\b")
_FORKED = re.compile(r"\bfork\b")
_INLINE = re.compile(r"\b(0|no) workers\b")


def supported(observations: Iterable[Observation], software: str) -> tuple[str, ...]:
    """Return the remedies that should come first, by what was seen with today's software."""
    last = {
        (each.probe, each.variant): each
        for each in sorted(observations, key=lambda observation: observation.at)
        if each.software == software
    }
    bad = [(probe, variant) for (probe, variant), each in last.items() if each.bad]
    well = [key for key, each in last.items() if each.outcome is ProbeOutcome.OK]
    found = []
    if (ATTENTION, "math") in well and _any(bad, ATTENTION, _FUSED):
        found.append("attention-math")
    if _any(well, LOADER, _INLINE) and _any(bad, LOADER, _FORKED):
        found.append("loader-inline")
    if any(probe == COMPILE for probe, _ in bad):
        found.append("compile-off")
    return tuple(found)


def _any(keys: Iterable[tuple[str, str]], name: str, pattern: re.Pattern[str]) -> bool:
    return any(probe == name and pattern.search(variant) for probe, variant in keys)
