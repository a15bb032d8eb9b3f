"""The channel between hosts, over a store in memory: what is said, how often, and its bounds."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from rocsteady_train.integrations.torchrun_channels import (
    MAX_READ,
    HostChannel,
    Message,
    ended,
    heaviest,
)

WITHIN = 20.0


class MemoryStore:
    """What torch's store does, in one process; counts what is asked of it."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        with self._lock:
            self.asked["set"] += 1
            self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        with self._lock:
            self.asked["get"] += 1
            return self.values[key]

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            self.asked["add"] += 1
            now = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(now).encode()
            return now

    def check(self, keys: list[str]) -> bool:
        with self._lock:
            self.asked["check"] += 1
            return all(key in self.values for key in keys)


def meet(store: MemoryStore, proposals: list[Message | None]) -> list[Message | None]:
    """Have every host propose, and the leader choose what weighs most; return what each heard."""
    hosts = len(proposals)

    def host(place: int) -> Message | None:
        channel = HostChannel(store, place, hosts)
        if channel.leads:
            others = channel.proposals(WITHIN)
            assert others is not None
            mine = [proposals[0]] if proposals[0] else []
            chosen = max([*mine, *others, {}], key=lambda each: each.get("weight", -1))
            channel.decide({**chosen, "heard": len(others)})
        else:
            channel.propose(proposals[place])
        return channel.decision(WITHIN)

    with ThreadPoolExecutor(hosts) as pool:
        return list(pool.map(host, range(hosts)))


def test_all_hosts_hear_the_same() -> None:
    heard = meet(MemoryStore(), [{"weight": 0}, {"weight": 2, "why": "oom"}, {"weight": 1}, None])

    assert heard == [{"weight": 2, "why": "oom", "heard": 2}] * 4


def test_only_one_of_those_that_remember_writes() -> None:
    remembers: Message = {"weight": 0, "tried": [1, 2]}

    heard = meet(MemoryStore(), [None, remembers, remembers, remembers])

    assert heard == [{**remembers, "heard": 1}] * 4


def test_many_failures_do_not_hide_a_cause() -> None:
    perhaps: list[Message | None] = [{"weight": 1, "why": str(place)} for place in range(40)]

    heard = meet(MemoryStore(), [None, *perhaps, {"weight": 2, "why": "cause"}])

    assert {json.dumps(each) for each in heard} == {
        json.dumps({"weight": 2, "why": "cause", "heard": MAX_READ + 1})
    }


def test_messages_grow_with_hosts_and_not_faster() -> None:
    asked = {}
    for hosts in (10, 40):
        store = MemoryStore()
        meet(store, [None] * hosts)
        asked[hosts] = store.asked["add"] + store.asked["get"] + store.asked["set"]

    assert asked[40] <= 4 * asked[10]


def test_a_host_that_does_not_arrive_is_not_waited_for_long() -> None:
    store = MemoryStore()
    HostChannel(store, 1, 3).propose(None)

    assert HostChannel(store, 0, 3).proposals(0.2) is None
    assert HostChannel(store, 1, 3).decision(0.2) is None


def test_nobody_leaves_before_all_have_heard_that_the_job_ends() -> None:
    store, heard = MemoryStore(), []

    def late() -> None:
        heard.append(1)
        HostChannel(store, 1, 2).part()

    timer = threading.Timer(0.3, late)
    timer.start()
    HostChannel(store, 0, 2).part()
    timer.join()

    assert heard == [1]


def test_a_store_that_is_gone_keeps_nobody() -> None:
    class Gone(MemoryStore):
        def add(self, key: str, amount: int) -> int:
            raise ConnectionError(f"{key} + {amount}")

    HostChannel(Gone(), 0, 2).part()

    with pytest.raises(ConnectionError):
        HostChannel(Gone(), 1, 2).propose(None)


def test_a_watcher_that_has_ended_proposes_its_code() -> None:
    assert ended(76, "x") == {"weight": 2, "ends": True, "code": 76, "why": "x"}


def test_without_a_watcher_that_decides_nothing_that_was_tried_is_forgotten() -> None:
    heir: Message = {"weight": 0, "tried": [1, 2]}
    cause: Message = {"weight": 2, "tried": [1], "why": "oom"}

    assert heaviest([heir, cause, {"weight": 1}]) is cause
    assert heaviest([{"weight": 0}, heir]) is heir
    assert heaviest([]) == {"why": "no watcher decided"}
