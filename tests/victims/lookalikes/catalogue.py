"""All cases, and which of them a run of the corpus takes."""

from __future__ import annotations

import hashlib

from lookalikes import hangs, locks, machine, outsiders, waits, work
from lookalikes.base import Case

LOOKALIKES = (
    waits.timeouts,
    waits.timers,
    waits.polling,
    locks.foreign_locks,
    locks.shared_memory,
    locks.sleeping_holders,
    outsiders.subprocesses,
    outsiders.asyncios,
    outsiders.sockets,
    outsiders.slow_io,
    outsiders.databases,
    outsiders.vector_environments,
    outsiders.printing,
    work.device_waits,
    work.after_training,
    work.ranks,
    work.loader_workers,
    work.compute,
    machine.clock_jumps,
    machine.suspended,
    machine.throttled,
)
HANGS = (
    hangs.self_deadlocks,
    hangs.lock_orders,
    hangs.queues,
    hangs.joins,
    hangs.conditions,
    hangs.pipes,
    hangs.workers,
    hangs.forks,
    hangs.processes,
    hangs.asyncios,
    hangs.collectives,
    hangs.gil,
    hangs.devices,
    hangs.unprovable,
)
LIBRARIES = {"libamdhip64.so": work.DEVICE, "libclock.so": machine.CLOCK}


def lookalikes() -> list[Case]:
    """Return the healthy scripts."""
    return [case for family in LOOKALIKES for case in family()]


def real_hangs() -> list[Case]:
    """Return the scripts that hang."""
    return [case for family in HANGS for case in family()]


def number_of(case: Case) -> int:
    """Return a number that depends on the name only."""
    return int.from_bytes(hashlib.sha256(case.name.encode()).digest()[:4], "big")


def half_of(case: Case) -> str:
    """Return ``tuning`` or ``held-out``: nothing may be tuned on the second."""
    return ("tuning", "held-out")[number_of(case) % 2]


def part_of(cases: list[Case], index: int, parts: int) -> list[Case]:
    """Return one of so many parts of about the same size."""
    ordered = sorted(cases, key=lambda case: (number_of(case), case.name))
    return ordered[index % parts :: parts]
