"""A rendezvous for very many hosts: each of them counts itself in.

torch's own rendezvous keeps the state of all hosts in one value, which every agent reads once a
second: traffic grows with the square of the hosts. Here an agent adds 1 to a counter, asks for a
key that the last one to arrive writes, and learns from a key of its own that a generation is over.
The store answers when that is written, so nothing is sent while ranks run, but for one question a
minute that notices a lost connection. The number of hosts is fixed.

An agent that ended while it waited for the others still counts. That generation then starts one
host short; its hosts notice when they agree on a decision, and meet in the next one.

Only a host of a generation ends it. One that comes later, as the replacement of a host that was
lost, waits until another one leaves; so does one too many, and disturbs nobody.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
import time
from datetime import timedelta
from typing import Any

from torch.distributed import DistError, DistStoreError, PrefixStore
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend

NAME = "rocsteady-counter"
GENERATION, CLOSED = "generation", "closed"
ARRIVED, COMPLETE, LEFT, OVER = "arrived", "complete", "left", "over"
JOIN_WITHIN = 600  # seconds, torchrun's own default of join_timeout
ASK_EVERY = 60.0  # seconds
END_WITHIN = 2.0  # seconds, for the listener
SHORTEST, LONGEST = 0.05, 1.0  # seconds, between two questions whether a key is there
WAIT_AT_MOST = timedelta(hours=1)


class CounterRendezvous(RendezvousHandler):
    """One agent's part."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        _, store = create_backend(parameters)
        self._run_id, self._hosts = parameters.run_id, parameters.max_nodes
        self._address = parameters.local_addr
        self._within = timedelta(seconds=parameters.get_as_int("join_timeout") or JOIN_WITHIN)
        self._store: Any = PrefixStore(f"rocsteady/{self._run_id}", store)
        self._listening: Any = self._store.clone()  # another connection, for waits
        self._generation = -1
        self._has_place = False  # in a generation; else it waits for one, and ends nobody's job
        self._is_over = threading.Event()
        self._listener: threading.Thread | None = None
        self._ended_by: Any = None  # writes the key that the listener waits for
        self._ask_at = 0.0
        atexit.register(self._end_listener)

    def get_backend(self) -> str:
        """Return the name of this rendezvous."""
        return NAME

    def get_run_id(self) -> str:
        """Return the ID of the job."""
        return str(self._run_id)

    def next_rendezvous(self) -> RendezvousInfo:
        """Arrive, and wait for the other hosts."""
        try:
            place = self._arrive()
            store = PrefixStore(str(self._generation), self._store)
            if place == self._hosts:
                store.set(COMPLETE, "")
            self._wait(store, COMPLETE, f"not all {self._hosts} hosts arrived")
            rank = place - 1
            if rank:
                self._wait(store, RendezvousStoreInfo.MASTER_PORT_KEY, "the first host is gone")
            first = RendezvousStoreInfo.build(rank, store, local_addr=self._address)
        except DistError as error:
            raise RendezvousConnectionError(str(error)) from error
        self._listen(store, f"{OVER}.{rank}")
        return RendezvousInfo(store, rank, self._hosts, first)

    def _listen(self, store: Any, key: str) -> None:  # noqa: ANN401 - torch's
        self._end_listener()
        self._is_over = threading.Event()
        self._ask_at = time.monotonic() + ASK_EVERY
        waiting = (PrefixStore(str(self._generation), self._listening), key, self._is_over)
        self._ended_by = functools.partial(store.set, key, "")
        self._listener = threading.Thread(target=_wait_for_end, args=waiting, daemon=True)
        self._listener.start()

    def _end_listener(self) -> None:
        """End the thread: torch would abort a process that ends its own store meanwhile."""
        listener, self._listener = self._listener, None
        if listener is not None and listener.is_alive():
            with contextlib.suppress(DistError):
                self._ended_by()
            listener.join(END_WITHIN)

    def _arrive(self) -> int:
        """Count this host in; return which place it has in its generation, from 1."""
        before = self._generation
        while True:
            if self.is_closed():
                raise RendezvousClosedError
            self._generation = number = self._store.add(GENERATION, 0)
            place = int(self._store.add(f"{number}/{ARRIVED}", 1))
            leaves = number == before  # and the first to leave begins another generation
            self._has_place = leaves or place <= self._hosts
            if place <= self._hosts:
                return place
            if leaves and self._store.add(f"{number}/{LEFT}", 1) == 1:
                self._store.add(GENERATION, 1)
                keys = [f"{number}/{OVER}.{rank}" for rank in range(self._hosts)]
                self._store.multi_set([f"{number}/{OVER}", *keys], [""] * (1 + len(keys)))
            else:
                self._wait(self._store, f"{number}/{OVER}", f"all {self._hosts} places are taken")

    def _wait(self, store: Any, key: str, otherwise: str) -> None:  # noqa: ANN401 - torch's
        """Wait for a key, as long as hosts may take to join."""
        deadline = time.monotonic() + self._within.total_seconds()
        pause = SHORTEST
        while not store.check([key]):  # its own wait would let no handler of a signal run
            if self.is_closed():
                raise RendezvousClosedError
            if time.monotonic() > deadline:
                raise RendezvousTimeoutError(otherwise)
            time.sleep(pause)
            pause = min(LONGEST, 1.5 * pause)

    def num_nodes_waiting(self) -> int:
        """Return 1 once a host has left this generation."""
        if not self._is_over.is_set() and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + ASK_EVERY
            try:
                if self._store.add(GENERATION, 0) != self._generation:
                    self._is_over.set()
            except DistError as error:
                raise RendezvousConnectionError(str(error)) from error
        return int(self._is_over.is_set())

    def is_closed(self) -> bool:
        """Tell whether the job is over."""
        return bool(self._store.check([CLOSED]))

    def set_closed(self) -> None:
        """End the job for all hosts."""
        with contextlib.suppress(DistError):  # its store is gone, and with it the job
            self._store.set(CLOSED, "")

    def shutdown(self) -> bool:
        """End the job for all hosts, at the end of this agent."""
        if self._has_place:
            self.set_closed()
        self._end_listener()
        return True


def _wait_for_end(store: Any, key: str, is_over: threading.Event) -> None:  # noqa: ANN401 - torch's
    while not is_over.is_set():
        try:
            store.wait([key], WAIT_AT_MOST)
        except DistStoreError:  # not yet
            continue
        except DistError:  # the connection is lost: the next question notices
            return
        is_over.set()
