"""Hangs and healthy pauses of jobs on many hosts, some of them late, lost or unable to prove.

    unshare -n sh -c "ip link set lo up; PYTHON benchmarks/quorum.py 4 100 1000"

Torch's store looks up the name of each host that connects, one after the other. Where a name server
is slow that takes most of the time (0.25 s a host were seen), so there is no network in this one.
PYTHON has torch and rocsteady. The channel, the watcher's part, the verdict and the store (torch's
own, in a process of its own, with a connection for each host) are real; hosts and the clock are
simulated. Each host notices within 5 s that it stands still. When it is asked for its proof again,
it is late with probability 0.01 (its processes cannot be read for 31 to 120 s), and in half of the
incidents a hundredth of the hosts, at least one, abstains from the start. Beside it stands what
unanimity would have found: all hosts, within 30 s of the question, tried again every minute.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from typing import Any, NamedTuple, cast

import msgspec
import torch.distributed as dist
from rocsteady_train.integrations.torchrun_channels import HangChannel, HostChannel

from rocsteady.hangs.judgment.verdict import Patience, Verdict
from rocsteady.hangs.proof.wait_set import Activity, Member, WaitSet, WakeSource
from rocsteady.hangs.values import Heartbeat, ProcessSeen, ThreadSeen, Wait, WayOut
from rocsteady.model import RunState
from rocsteady.run.engines.torchrun import AgentLink
from rocsteady.run.hosts.blamed_nodes import BlamedNodes
from rocsteady.run.hosts.job_hang import JobHang
from rocsteady.run.telling.announcer import Announcer

INCIDENTS = {4: 40, 100: 6, 1000: 2}  # of each kind, by hosts
LOOK, NOTICE_WITHIN, AN_HOUR = 1.0, 5.0, 3600.0  # seconds
LATE, LATE_FOR = 0.01, (31.0, 120.0)
UNANIMOUS_WITHIN, UNANIMOUS_EVERY = 30.0, 60.0
SERVER = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""
HEALTHY_FOR = 600.0  # seconds that all but one host wait


def _member(frames: tuple[str, ...]) -> Member:
    thread = ThreadSeen(tid=1, name="python", state="S", cpu=0.0, wait=Wait.LOCK, frames=frames)
    process = ProcessSeen(
        pid=1, parent=1, name="python", python=True, read_bytes=0, written_bytes=0, rss_bytes=0,
        threads=(thread,),
    )  # fmt: skip
    return Member(process=process, thread=thread, trains=True, activity=Activity.WAITS_INSIDE)


def _unproven(way: WayOut) -> Verdict:
    exits = (WakeSource(pid=1, tid=1, way=way, what=""),)
    waits = WaitSet(at=0.0, members=(_member(()),), exits=exits)
    return Verdict(condition=RunState.SLOW, why="", quiet=40.0, waits=waits)


MOVES = Verdict(condition=RunState.HEALTHY, why="", quiet=0.1)
WAITS = Verdict(condition=RunState.HUNG, why="", quiet=9.0)
DEAD = msgspec.structs.replace(
    WAITS, waits=WaitSet(at=0.0, members=(_member(("acquire (threading.py:9)",)),))
)
UNREAD, CUT = _unproven(WayOut.UNREAD), _unproven(WayOut.NETWORK)


class Link:
    """The agent of a host."""

    def __init__(self, hangs: HangChannel) -> None:
        self.messages: list[dict[str, Any]] = []
        self.blamed_nodes = BlamedNodes({})
        self._hangs = hangs

    def tell(self, **message: object) -> None:
        """Pass on what the watcher says."""
        self._hangs.heard(message)

    def look(self) -> None:
        """Hear what other hosts say."""
        if (told := self._hangs.look()) is not None:
            self.messages.append(told)


class Host:
    """A host with one rank."""

    def __init__(self, store: Any, place: int, hosts: int, clock: list[float]) -> None:  # noqa: ANN401 - torch's
        channel = HostChannel(store, place, hosts)
        self.link = Link(HangChannel(channel, now=lambda: clock[0]))
        announcer = Announcer(quiet=True)
        self.watch = JobHang(cast("AgentLink", self.link), announcer, Patience())
        self.beats = (_beat(place, hosts),)
        self.verdict, self.notices, self.readable, self.is_lost = MOVES, 0.0, 0.0, False
        self._clock = clock

    def tick(self) -> bool:
        """Return whether this host says that the job hangs."""
        if self.is_lost:
            return False
        self.link.look()
        verdict = self.verdict if self._clock[0] >= self.notices else MOVES
        can = self._clock[0] >= self.readable
        return self.watch.is_proven(verdict, self.beats, lambda: True if can else None)


def _beat(rank: int, world: int) -> Heartbeat:
    return Heartbeat(
        pid=1, rank=rank, world=world, thread=1, step=9, beats=30, phase="backward", since=0.0,
        last_step=1.0, ended=False, raised=False, total=None, seconds_in={}, longest_in={},
        histogram={},
    )  # fmt: skip


class Found(NamedTuple):
    """What came of one incident: after how many seconds it was found; None: it was not."""

    quorum: float | None
    unanimity: float | None


class Simulation:
    """Jobs on so many hosts, one after the other."""

    def __init__(self, hosts: int, port: int) -> None:
        self._hosts, self._draw, self._number = hosts, random.Random(hosts), 0  # noqa: S311
        self._stores = [
            dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
            for _ in range(hosts)
        ]

    def job(self) -> tuple[list[Host], list[float]]:
        """Start a generation, all of whose hosts stand still within seconds."""
        self._number += 1
        clock = [0.0]
        prefix = f"{self._hosts}.{self._number}"
        hosts = [
            Host(dist.PrefixStore(prefix, store), place, self._hosts, clock)
            for place, store in enumerate(self._stores)
        ]
        for host in hosts:
            host.verdict, host.notices = WAITS, self._draw.uniform(0.0, NOTICE_WITHIN)
        return hosts, clock

    def hang(self, *, dead: bool, abstains: bool) -> Found:
        """Have a job hang, with or without a rank that is dead for good."""
        hosts, clock = self.job()
        if dead:
            self._draw.choice(hosts).verdict = DEAD
        others = [host for host in hosts[1:] if host.verdict is WAITS]
        count = min(len(others), max(1, self._hosts // 100)) if abstains else 0
        for host in self._draw.sample(others, count):
            host.verdict = UNREAD
        for host in hosts:
            if self._draw.random() < LATE:
                host.readable = NOTICE_WITHIN + self._draw.uniform(*LATE_FOR)
        return Found(self._run(hosts, clock, AN_HOUR), self._unanimous(abstains=abstains))

    def pause(self, verdict: Verdict) -> bool:
        """Have one host keep all others waiting; return whether the job was stopped."""
        hosts, clock = self.job()
        self._draw.choice(hosts).verdict = verdict
        return self._run(hosts, clock, HEALTHY_FOR) is not None

    def lost(self) -> float | None:
        """Have a host vanish."""
        hosts, clock = self.job()
        self._draw.choice(hosts).is_lost = True
        return self._run(hosts, clock, AN_HOUR)

    @staticmethod
    def _run(hosts: list[Host], clock: list[float], until: float) -> float | None:
        while clock[0] < until:
            clock[0] += LOOK
            said = [host.tick() for host in hosts]
            if any(said):
                return clock[0]
        return None

    def _unanimous(self, *, abstains: bool) -> float | None:
        """Return when all hosts of a job would have proven it within one question."""
        if abstains:
            return None
        at = NOTICE_WITHIN
        while at < AN_HOUR:
            if all(self._draw.random() >= LATE for _ in range(self._hosts)):
                return at
            at += UNANIMOUS_EVERY
        return None


def _shown(found: list[float | None]) -> str:
    hits = [each for each in found if each is not None]
    if not hits:
        return f"0 of {len(found)}"
    usual, longest = statistics.median(hits), max(hits)
    return f"{len(hits)} of {len(found)}, median {usual:.0f} s, at most {longest:.0f} s"


def simulate(hosts: int, port: int) -> None:
    """Print what was found at one size."""
    simulation, times = Simulation(hosts, port), INCIDENTS.get(hosts, 10)
    print(f"{hosts} hosts")
    for dead in (True, False):
        for abstains in (False, True):
            found = [simulation.hang(dead=dead, abstains=abstains) for _ in range(times)]
            what = "a rank in a lock" if dead else "all in collectives"
            who = ", some hosts abstain" if abstains else ""
            print(
                f"  hang, {what}{who}: quorum {_shown([each.quorum for each in found])};", end=" "
            )
            print(f"unanimity {_shown([each.unanimity for each in found])}", flush=True)
    print(f"  a host is lost: {_shown([simulation.lost() for _ in range(times)])}")
    for what, verdict in (("moves", MOVES), ("has a link that was cut", CUT)):
        pauses = max(1, times // 2)
        stopped = sum(simulation.pause(verdict) for _ in range(pauses))
        print(f"  healthy, one host {what} for 10 min: stopped {stopped} of {pauses}", flush=True)


def main() -> None:
    """Serve a store, and simulate each size."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        port = int(server.stdout.readline() if server.stdout else 0)
        for count in sys.argv[1:]:
            simulate(int(count), port)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
