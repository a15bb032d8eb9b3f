"""How long each phase usually takes here: from the heartbeats of this run and of earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from rocsteady.hangs.values import Heartbeat
from rocsteady.store.values import PhaseHistory, Stays


def stays_in_phase(heartbeat: Heartbeat) -> Stays:
    """Return how long this process stayed so far in the phase that it is in now."""
    phase = heartbeat.phase
    return Stays(
        longest=heartbeat.longest_in.get(phase, 0.0),
        histogram=heartbeat.histogram.get(phase, ()),
    )


def from_heartbeats(heartbeats: Iterable[Heartbeat]) -> PhaseHistory:
    """Sum what the processes of one attempt tell; their order does not matter."""
    phases: dict[str, Stays] = {}
    for heartbeat in heartbeats:
        for phase, longest in heartbeat.longest_in.items():
            own = Stays(longest=longest, histogram=heartbeat.histogram.get(phase, ()))
            phases[phase] = _sum(phases.get(phase, Stays()), own)
    return PhaseHistory(phases=dict(sorted(phases.items())))


def _sum(one: Stays, other: Stays) -> Stays:
    counts = zip_longest(one.histogram, other.histogram, fillvalue=0)
    return Stays(
        longest=max(one.longest, other.longest),
        histogram=tuple(first + second for first, second in counts),
    )
