"""A hang over several hosts: real channels and decisions, simulated hosts and ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import msgspec
import pytest
from rocsteady_train.integrations.torchrun_channels import HangChannel, HostChannel

from rocsteady.hangs.judgment.verdict import Patience, Verdict
from rocsteady.hangs.proof.wait_set import Activity, Member, WaitSet, WakeSource
from rocsteady.hangs.values import Heartbeat, ProcessSeen, ThreadSeen, Wait, WayOut
from rocsteady.model import RunState
from rocsteady.run.engines.torchrun import AgentLink
from rocsteady.run.hosts.blamed_nodes import BlamedNodes
from rocsteady.run.hosts.job_hang import SAY_AFTER, JobHang
from rocsteady.run.hosts.messages import AgentMessage
from rocsteady.run.telling.announcer import Announcer

HUNG = Verdict(condition=RunState.HUNG, why="", quiet=9.0)
HEALTHY = Verdict(condition=RunState.HEALTHY, why="", quiet=0.1)


def unproven(way: WayOut, pid: int = 1) -> Verdict:
    """Return what is said of ranks that do not move, and for which there is this way out."""
    exits = (WakeSource(pid=pid, tid=pid, way=way, what=""),)
    waits = WaitSet(at=1.0, members=(stuck(pid),), exits=exits)
    return Verdict(condition=RunState.SLOW, why="", quiet=40.0, waits=waits)


def stuck(pid: int) -> Member:
    thread = ThreadSeen(tid=pid, name="python", state="S", cpu=0.0, wait=Wait.LOCK)
    process = ProcessSeen(
        pid=pid, parent=1, name="python", python=True, read_bytes=0, written_bytes=0, rss_bytes=0,
        threads=(thread,),
    )  # fmt: skip
    return Member(process=process, thread=thread, trains=True, activity=Activity.WAITS_INSIDE)


UNREAD, CUT = unproven(WayOut.UNREAD), unproven(WayOut.NETWORK)
IN_PYTHON = msgspec.structs.replace(stuck(9).thread, frames=("acquire (threading.py:9)",))
DEAD = WaitSet(at=1.0, members=(msgspec.structs.replace(stuck(9), thread=IN_PYTHON),))


class Store:
    """A store in memory that counts what is asked of it."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()

    def set(self, key: str, value: str) -> None:
        self.asked["set"] += 1
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        self.asked["get"] += 1
        return self.values[key]

    def add(self, key: str, amount: int) -> int:
        self.asked["add"] += 1
        self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
        return int(self.values[key])

    def check(self, keys: list[str]) -> bool:
        self.asked["check"] += 1
        return all(key in self.values for key in keys)


class Link:
    """An agent: what its watcher tells goes to the channel, and the other way round."""

    def __init__(self, hangs: HangChannel) -> None:
        self.messages: list[AgentMessage] = []
        self.blamed_nodes = BlamedNodes({})
        self._hangs = hangs

    def tell(self, **message: object) -> None:
        self._hangs.heard(msgspec.to_builtins(message))

    def look(self) -> None:
        if (told := self._hangs.look()) is not None:
            self.messages.append(msgspec.json.decode(msgspec.json.encode(told), type=AgentMessage))


class Host:
    """A host with two ranks, and its watcher."""

    def __init__(
        self, store: Store, place: int, hosts: int, world: int, clock: list[float]
    ) -> None:
        self.link = Link(HangChannel(HostChannel(store, place, hosts), now=lambda: clock[0]))
        self.announcer = Announcer()
        self.announcer.quiet = True
        self.watch = JobHang(cast("AgentLink", self.link), self.announcer, Patience())
        self.beats = tuple(beat(2 * place + local, world) for local in range(2))
        self.verdict = HUNG
        self.proves: bool | None = True  # None: nothing can be read

    def tick(self) -> bool:
        self.link.look()
        return self.watch.is_proven(self.verdict, self.beats, lambda: self.proves)


def beat(rank: int, world: int) -> Heartbeat:
    return Heartbeat(
        pid=rank + 1,
        rank=rank,
        world=world,
        thread=rank + 1,
        step=9,
        beats=30,
        phase="backward",
        since=0.0,
        last_step=1.0,
        ended=False,
        raised=False,
        total=None,
        seconds_in={},
        longest_in={},
        histogram={},
    )


class Job:
    """So many hosts, and a clock that all of them are simulated by."""

    def __init__(self, hosts: int) -> None:
        self.store, self.clock = Store(), [0.0]
        self.hosts = [Host(self.store, each, hosts, 2 * hosts, self.clock) for each in range(hosts)]

    def after(self, seconds: float) -> Sequence[bool]:
        """Tick for a while; return whose watchers said that the job hangs."""
        said = [False] * len(self.hosts)
        for _ in range(int(seconds * 2)):
            self.clock[0] += 0.5
            for place, host in enumerate(self.hosts):
                said[place] = host.tick() or said[place]
        return said


def test_a_job_of_which_all_hosts_are_stuck_hangs_on_all_of_them() -> None:
    job = Job(3)

    assert job.after(15) == [True] * 3
    known = [host.watch.judged(HUNG).blame is not None for host in job.hosts]
    assert known == [True, False, False]  # the leader has compared the ranks of all hosts


@pytest.mark.parametrize("busy", [0, 1, 2])
def test_one_busy_host_keeps_the_job_alive(busy: int) -> None:
    job = Job(3)
    job.hosts[busy].verdict = HEALTHY

    assert job.after(3600) == [False] * 3


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_host_that_cannot_prove_it_once_more_keeps_the_job_alive(moved: int) -> None:
    job = Job(3)
    job.hosts[moved].proves = False

    assert job.after(600) == [False] * 3


def test_hosts_that_are_never_stuck_at_the_same_time_do_not_hang() -> None:
    job = Job(2)
    for place in (0, 1, 0, 1):
        job.hosts[place].verdict, job.hosts[1 - place].verdict = HUNG, HEALTHY
        assert job.after(20) == [False, False]


@pytest.mark.parametrize("busy", [0, 2])
def test_a_proof_that_could_not_be_read_is_repeated_and_not_taken_back(busy: int) -> None:
    job = Job(3)
    job.hosts[busy].proves = None
    assert job.after(40) == [False] * 3
    assert job.store.values["rocsteady/moved"] == b"0"

    job.hosts[busy].proves = True

    assert job.after(15) == [True] * 3


@pytest.mark.parametrize("dead", [True, False])
def test_hosts_that_cannot_prove_their_part_do_not_blind_the_others(dead: object) -> None:
    job = Job(5)
    job.hosts[1].proves = None  # it is too busy to be read
    job.hosts[3].verdict = UNREAD
    if dead:
        job.hosts[4].verdict = msgspec.structs.replace(HUNG, waits=DEAD)
    said: list[str] = []
    job.hosts[0].announcer.say = lambda text, **_: said.append(text)  # type: ignore[method-assign]

    assert job.after(50 if dead else 290) == [False] * 5
    assert job.after(30) == [True] * 5
    assert "host 1 (" in said[-1]
    assert "host 3 (" in said[-1]


def test_a_host_that_moves_after_it_has_abstained_keeps_the_job_alive() -> None:
    job = Job(3)
    job.hosts[2].verdict = UNREAD
    for _ in range(20):
        assert job.after(200) == [False] * 3
        job.hosts[2].verdict = HEALTHY
        assert job.after(0.5) == [False] * 3
        job.hosts[2].verdict = UNREAD


def test_a_cut_link_is_no_hang_and_a_lost_host_still_is_one() -> None:
    job = Job(3)
    job.hosts[1].verdict = CUT
    assert job.after(3600) == [False] * 3

    job.hosts[0].verdict = CUT
    job.hosts.pop(2)

    assert True in job.after(240)
    assert job.hosts[0].watch.settled  # no snapshot could prove it


def test_a_job_that_went_on_may_hang_later() -> None:
    job = Job(2)
    job.hosts[1].proves = False
    assert job.after(20) == [False, False]
    for host in job.hosts:
        host.verdict = HEALTHY
    assert job.after(5) == [False, False]

    for host in job.hosts:
        host.verdict, host.proves = HUNG, True

    assert job.after(90) == [True, True]


def test_hosts_that_train_are_silent() -> None:
    job = Job(100)
    for host in job.hosts:
        host.verdict = HEALTHY

    job.after(600)

    assert job.store.asked == {"add": 100 * 10}  # a sign of life a minute


def test_a_host_that_waits_for_the_others_asks_seldom_and_says_so() -> None:
    job = Job(2)
    job.hosts[1].verdict = HEALTHY
    said: list[str] = []
    job.hosts[0].announcer.say = lambda text, **_: said.append(text)  # type: ignore[method-assign]

    for quiet in range(10, 3600, 2):
        job.hosts[0].verdict = msgspec.structs.replace(HUNG, quiet=float(quiet))
        assert job.after(2) == [False, False]

    assert sum(job.store.asked.values()) < 3600
    assert [text.split(".")[0] for text in said] == [
        f"ranks here have been waiting for other hosts for {SAY_AFTER:.0f} s"
    ]


@pytest.mark.parametrize("lost", [0, 2])
def test_a_host_that_gives_no_sign_of_life_is_not_waited_for(lost: int) -> None:
    job = Job(3)
    gone = job.hosts.pop(lost)

    assert job.after(100) == [False, False]
    assert True in job.after(120)
    assert not gone.link.messages


def test_with_one_host_its_own_verdict_counts() -> None:
    watch = JobHang(None, Announcer(), Patience())

    assert watch.is_proven(HUNG, (), lambda: True)
    assert not watch.is_proven(HEALTHY, (), lambda: True)
