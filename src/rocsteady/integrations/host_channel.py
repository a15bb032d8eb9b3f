"""What hosts of one job tell each other, through the store at which they meet.

Each generation of ranks has keys of its own. Before it starts, every host counts itself in. Only a
host with something to say also writes what it would do: one that failed, and one of those that
remember what was tried. The leader, host 0, reads these few and writes the decision for all.

The store is anything with ``set``, ``get``, ``add`` and ``check``, such as torch's. No clock of
another host is read, and every wait has a bound.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any, Protocol

LEADER = 0
MOST_READ = 16  # proposals of each weight
FIRST_LOOK, LAST_LOOK = 0.05, 1.0  # seconds between two looks: the longer it lasts, the fewer
GOODBYE_WITHIN = 10.0  # seconds for all to read that the job ends, before its store is gone
WEIGHTS = (2, 1)  # of a proposal: it names a cause; it may be one
HEIR = 0  # the weight of one that only remembers
PREFIX = "rocsteady/"
ARRIVED, ALL_ARRIVED, DECISION, READ = "arrived", "all", "decision", "read"

Message = dict[str, Any]


class Store(Protocol):
    """What torch's stores can do, as far as it is needed."""

    def set(self, key: str, value: str, /) -> None:
        """Write a value."""

    def get(self, key: str, /) -> bytes:
        """Read a value that is there."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a count; return what it is then."""

    def check(self, keys: list[str], /) -> bool:
        """Tell whether all of them are there."""


class HostChannel:
    """One host's end, for one generation of ranks."""

    def __init__(
        self,
        store: Store,
        host: int,
        hosts: int,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.host, self.hosts = host, hosts
        self._store, self._now, self._sleep = store, now, sleep

    @property
    def leads(self) -> bool:
        """Tell whether this host decides."""
        return self.host == LEADER

    def propose(self, proposal: Message | None) -> None:
        """Count this host in, with what it would do."""
        if proposal is not None:
            self._publish(proposal)
        if self._add(ARRIVED) == self.hosts - 1:
            self._set(ALL_ARRIVED, {})

    def proposals(self, within: float) -> list[Message] | None:
        """Wait for the other hosts; return what they would do, None if one did not arrive."""
        if self.hosts > 1 and not self._until(ALL_ARRIVED, within):
            return None
        found: list[Message] = []
        for weight in (*WEIGHTS, HEIR):
            written = min(self._add(f"proposals.{weight}", 0), _most(weight))
            keys = [f"proposal.{weight}.{place + 1}" for place in range(written)]
            found += [self._get(key) for key in keys if self._has(key)]
        return found

    def decide(self, decision: Message) -> None:
        """Write what all hosts do."""
        self._set(DECISION, decision)

    def decision(self, within: float) -> Message | None:
        """Wait for what all hosts do; None if nothing was heard."""
        return self._get(DECISION) if self._until(DECISION, within) else None

    def part(self) -> None:
        """Wait until all hosts know that the job ends: the store ends with one of them."""
        with contextlib.suppress(Exception):  # it is gone, so all have read it
            count, deadline = self._add(READ), self._now() + GOODBYE_WITHIN
            while count < self.hosts and self._now() < deadline:
                self._sleep(FIRST_LOOK)
                count = self._add(READ, 0)

    def _publish(self, proposal: Message) -> None:
        weight = int(proposal.get("weight", HEIR))
        if weight == HEIR and not proposal.get("tried"):
            return
        place = self._add(f"proposals.{weight}")
        if place <= _most(weight):
            self._set(f"proposal.{weight}.{place}", proposal)

    def _until(self, key: str, within: float) -> bool:
        deadline, look = self._now() + within, FIRST_LOOK
        while not self._has(key):
            left = deadline - self._now()
            if left <= 0:
                return False
            self._sleep(min(look, left))
            look = min(2 * look, LAST_LOOK)
        return True

    def _has(self, key: str) -> bool:
        return bool(self._store.check([PREFIX + key]))

    def _add(self, key: str, amount: int = 1) -> int:
        return int(self._store.add(PREFIX + key, amount))

    def _set(self, key: str, value: Message) -> None:
        self._store.set(PREFIX + key, json.dumps(value))

    def _get(self, key: str) -> Message:
        return dict(json.loads(self._store.get(PREFIX + key)))


def _most(weight: int) -> int:
    return 1 if weight == HEIR else MOST_READ


def ended(code: int, why: str) -> Message:
    """Return the proposal to end the job, of a host whose watcher has ended."""
    return {"weight": max(WEIGHTS), "ends": True, "code": code, "why": why}
