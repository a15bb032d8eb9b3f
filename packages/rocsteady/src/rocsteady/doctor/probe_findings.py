"""What was seen when things were really tried here, as findings.

An observation is true of the software that it was made with. One of other software is a note: it
may be mended since, and nobody has tried.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from rocsteady.doctor.knowledge.values import Confidence, Fix, Severity
from rocsteady.doctor.machine.machine import changes
from rocsteady.doctor.values import Finding
from rocsteady.model import TRIAL, Observation, ProbeOutcome

RULE = "seen-by-probe"
DID = {
    ProbeOutcome.WRONG: "gave wrong results",
    ProbeOutcome.EXCEPTION: "raised an error",
    ProbeOutcome.HANG: "hung",
    ProbeOutcome.CRASH: "crashed",
    ProbeOutcome.NO_MEMORY: "ran out of memory",
    ProbeOutcome.UNKILLABLE: "hung and could not be killed",
    ProbeOutcome.WENT_DOWN: "crashed the machine",
}


def findings(observations: Iterable[Observation], software: str) -> Iterator[Finding]:
    wrong: dict[tuple[str, bool], list[Observation]] = {}
    for last in _last(observations, software):
        if last.bad:
            wrong.setdefault((last.probe, last.software == software), []).append(last)
    for (probe, current), seen in wrong.items():
        yield _finding(probe, sorted(seen, key=lambda each: each.at), software, current=current)


def _last(observations: Iterable[Observation], software: str) -> Iterator[Observation]:
    """Yield the newest of each probe and variant; today's software counts before the rest."""
    found: dict[tuple[str, str], Observation] = {}
    for each in observations:
        if each.outcome is ProbeOutcome.NOT_RUN or each.probe == TRIAL:
            continue
        key = (each.probe, each.variant)
        before = found.get(key)
        if before is None or _weight(each, software) >= _weight(before, software):
            found[key] = each
    yield from found.values()


def _weight(observation: Observation, software: str) -> tuple[bool, float]:
    return observation.software == software, observation.at


def _finding(probe: str, seen: list[Observation], software: str, *, current: bool) -> Finding:
    last = seen[-1]
    others = f" So did {len(seen) - 1} other variants of it." if len(seen) > 1 else ""
    others = others.replace("1 other variants", "1 other variant")
    text = f"Seen by rocsteady probe on {_told(last)}.{others}"
    if not current:
        text += f" That was with {changes(last.software, software) or 'other software'}."
    return Finding(
        rule=RULE,
        severity=Severity.RISKS if current else Severity.NOTES,
        summary=text,
        seen=tuple(_told(each) for each in seen),
        fix=Fix(
            text="Run the probe again, and read its details.",
            commands=(f"rocsteady probe {probe}", f"rocsteady probe --explain {probe}"),
        ),
        confidence=Confidence.OFFICIAL,
        confirmed_on=("this machine",),
        sources=(),
    )


def _told(seen: Observation) -> str:
    day = time.strftime("%Y-%m-%d", time.localtime(seen.at))
    title = f"{seen.probe} {seen.variant}".rstrip()
    stuck = seen.outcome in (ProbeOutcome.HANG, ProbeOutcome.UNKILLABLE)
    where = f" at try {seen.tries + 1:,}" if stuck else ""
    place = f", in {seen.place}" if seen.place else ""
    return f"{day}: {title} {DID[seen.outcome]}{where}{place}"
