"""An hour of a job on many hosts, with 20 incidents: what its store and its leader have to do.

    PYTHON benchmarks/hosts.py 100 1000

PYTHON has torch and rocsteady. The channel, the decisions and the store (torch's own, in a process
of its own, with a connection for each host) are real; agents, ranks and the clock are simulated.
Prints messages, bytes of keys and values, and processor time, for the hour without incidents and
for each incident. Aims: below 20 messages a second and 1 % of a core, incidents linear in hosts.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch.distributed as dist
from rocsteady_train.integrations.torchrun_channels import (
    ACCEPTED,
    DECISION,
    HangChannel,
    HostChannel,
)

from rocsteady.model import RankRecord, WaitsFor
from rocsteady.run.hosts.host_decision import choose
from rocsteady.run.hosts.job_verdict import HostPart, Part, job_blame, job_verdict
from rocsteady.run.hosts.messages import HostProposal, Weight

HOUR, INCIDENTS, RANKS = 3600, 20, 8
LOOK = 0.5  # seconds between two looks of an agent while something is wrong; 1 second otherwise
ARRIVE_WITHIN = 5.0  # seconds in which agents come to a rendezvous
SERVER = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""

WHY = "retrying without changes from the last checkpoint"


class CountingStore:
    """What a host has of the store in one generation; counts what goes through it."""

    messages, size = 0, 0  # of all hosts

    def __init__(self, store: Any) -> None:  # noqa: ANN401 - torch's
        self._store = store
        self.hides: Callable[[str], bool] = lambda _: False  # what is not there yet, by the clock

    def set(self, key: str, value: str, /) -> None:
        """Write a value."""
        self._counted(len(key) + len(value))
        self._store.set(key, value)

    def get(self, key: str, /) -> bytes:
        """Read a value."""
        value = bytes(self._store.get(key))
        self._counted(len(key) + len(value))
        return value

    def add(self, key: str, amount: int, /) -> int:
        """Add to a count."""
        self._counted(len(key) + 8)
        return int(self._store.add(key, amount))

    def check(self, keys: list[str], /) -> bool:
        """Look for keys."""
        self._counted(sum(map(len, keys)) + 1)
        return bool(self._store.check(keys)) and not any(map(self.hides, keys))

    @staticmethod
    def _counted(size: int) -> None:
        CountingStore.messages += 1
        CountingStore.size += size


class Job:
    """All hosts of a job, of which host 0 leads."""

    def __init__(self, hosts: int, port: int) -> None:
        self.hosts, self.now, self.generation = hosts, 0.0, 0
        self.leading = 0.0  # seconds of processor time of the leader's own code
        self._draw = random.Random(hosts)  # noqa: S311 - not for secrets
        self._stores = [_connected(port) for _ in range(hosts)]
        self._hangs: list[HangChannel] = []
        self.meet(None)

    def meet(self, failed: int | None) -> None:
        """Start a generation: agents arrive one by one, and the leader decides for all."""
        self.generation += 1
        clocks = [self._draw.uniform(0.0, ARRIVE_WITHIN) for _ in range(self.hosts)]
        prefix = f"{self.generation}"
        stores = [CountingStore(dist.PrefixStore(prefix, each)) for each in self._stores]
        channels = [self._channel(host, store, clocks) for host, store in enumerate(stores)]
        for host, channel in enumerate(channels[1:], 1):
            weight = Weight.CAUSE if host == failed else Weight.NOTHING
            proposal = HostProposal(host=host, weight=weight, kind="killed", why=WHY)
            channel.propose(msgspec.to_builtins(proposal))
        began = time.process_time()
        leader = channels[0]
        others = leader.proposals(0.0)
        check(others is not None, "a host is missing")
        told = [msgspec.convert(each, HostProposal) for each in others or ()]
        leader.decide(msgspec.to_builtins(choose([HostProposal(why=WHY), *told])))
        self.leading += time.process_time() - began
        decided_at = max(clocks)
        for host, channel in enumerate(channels):
            stores[host].hides = lambda key, h=host: (  # type: ignore[misc]
                key.endswith(DECISION) and clocks[h] < decided_at
            )
            decision = channel.decision(10 * ARRIVE_WITHIN) or {}
            check(not failed or decision.get("host") == failed, "the hosts do not agree")
        for channel in reversed(channels):  # the last to answer finds that all have
            channel.count(ACCEPTED)
        check(all(each.count(ACCEPTED, 0) == self.hosts for each in channels), "not all accept")
        self._hangs = [HangChannel(channel, lambda: self.now) for channel in channels]
        self.now += decided_at

    def _channel(self, host: int, store: CountingStore, clocks: list[float]) -> HostChannel:
        def sleep(seconds: float) -> None:
            clocks[host] += seconds

        return HostChannel(store, host, self.hosts, now=lambda: clocks[host], sleep=sleep)

    def run(self, until: float) -> None:
        """Let all agents look once a second; nothing is wrong."""
        while self.now < until:
            self.now += 1.0
            for hangs in self._hangs:
                check(hangs.look() is None, "a host was told something")

    def hang(self) -> None:
        """Have all ranks stuck: hosts notice it one by one, and the leader decides for all."""
        notice = [self.now + self._draw.uniform(0.0, ARRIVE_WITHIN) for _ in range(self.hosts)]
        told, ended = set[int](), set[int]()
        while len(ended) < self.hosts:
            self.now += LOOK
            for host, hangs in enumerate(self._hangs):
                if host not in told and notice[host] <= self.now:
                    told.add(host)
                    hangs.heard({"part": self._part(host)})
                began = time.process_time()
                ended |= {host} if self._answered(hangs, hangs.look()) else set()
                self.leading += 0.0 if host else time.process_time() - began

    @staticmethod
    def _answered(hangs: HangChannel, message: dict[str, Any] | None) -> bool:
        """Do what a watcher does with a message; True: the ranks of its host are ended."""
        if message is None:
            return False
        if "confirm" in message:
            hangs.heard({"confirmed": message["confirm"]})
        elif "parts" in message:
            parts = [msgspec.convert(each, HostPart) for each in message["parts"]]
            judged = job_verdict(
                parts, hosts=message["of"], asked=message["asked"], still=message["still"]
            )
            check(judged.hangs, "not all are stuck")
            job_blame(parts)
            hangs.heard({"hangs": True})
            return True
        return "hangs" in message

    def _part(self, host: int) -> dict[str, Any]:
        ranks = range(host * RANKS, (host + 1) * RANKS)
        records = tuple(
            RankRecord(rank=rank, pid=4000 + rank, step=1000, phase="backward",
                       place="train.py:88 main", waits_for=WaitsFor.RANKS)
            for rank in ranks
        )  # fmt: skip
        world = RANKS * self.hosts
        part = HostPart(part=Part.PROVEN, world=world, ranks=tuple(ranks), records=records)
        return dict(msgspec.to_builtins(part))


def _connected(port: int) -> dist.Store:
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)


def check(found: object, what: str) -> None:
    """End if the simulation is not what it claims to be."""
    if not found:
        raise SystemExit(what)


class Count:
    """What store and leader have done up to a moment."""

    def __init__(self, job: Job, server: int) -> None:
        fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
        self.store = (int(fields[11]) + int(fields[12])) / 100.0
        self.leader = job.leading
        self.messages, self.bytes = CountingStore.messages, CountingStore.size


def simulate(hosts: int) -> None:
    """Go through the hour, once without incidents and once with them."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    job = Job(hosts, int(server.stdout.readline() if server.stdout else 0))
    try:
        start = Count(job, server.pid)
        job.run(HOUR)
        quiet = Count(job, server.pid)
        for number in range(INCIDENTS):
            if number % 2:
                job.hang()
            job.meet(number * (hosts - 1) // INCIDENTS)
        loud = Count(job, server.pid)
    finally:
        server.terminate()
        server.wait()
    messages, size = quiet.messages - start.messages, quiet.bytes - start.bytes
    share = 100 * (quiet.store - start.store + quiet.leader - start.leader) / HOUR
    print(f"{hosts} hosts, {RANKS * hosts} ranks")
    print(f"  an hour without incidents: {messages / HOUR:.2f} messages/s, {size / HOUR:.0f} B/s,")
    print(f"    {share:.3f} % of a core at the store and the leader")
    each = (loud.messages - quiet.messages) / INCIDENTS
    print(f"  an incident: {each:.0f} messages ({each / hosts:.1f} a host),", end=" ")
    print(f"{(loud.bytes - quiet.bytes) / INCIDENTS / 1e3:.0f} kB,", end=" ")
    print(f"{(loud.store - quiet.store) / INCIDENTS:.3f} s at the store,", end=" ")
    print(f"{(loud.leader - quiet.leader) / INCIDENTS:.3f} s at the leader")
    with_all = (loud.messages - start.messages) / HOUR
    print(f"  an hour with {INCIDENTS} incidents: {with_all:.1f} messages/s on average")


if __name__ == "__main__":
    for count in sys.argv[1:]:
        simulate(int(count))
