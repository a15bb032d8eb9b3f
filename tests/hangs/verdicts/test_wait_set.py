"""The proof of a hang: no set of waits with a way out is ever called closed."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocsteady.hangs.judgment.judgment import begin, worth_stopping
from rocsteady.hangs.proof.wait_graph import wait_set
from rocsteady.hangs.proof.wait_set import Activity, WaitSet, prove, sentences
from rocsteady.hangs.values import (
    Blocked,
    ProcessSeen,
    Snapshot,
    ThreadSeen,
    Wait,
    WayOut,
)
from tests.hangs.verdicts.simulate import LOADER, TORCH, TRAINER, WORKER, WORKER_LOOP, Page, known

SELECT = "select (/usr/lib/python3.12/selectors.py:415)"
GET = "get (/usr/lib/python3.12/multiprocessing/queues.py:113)"
FEED = "_feed (/usr/lib/python3.12/multiprocessing/queues.py:239)"
MAIN = "main (/home/u/train.py:40)"
OUTSIDE = (WayOut.DESCRIPTOR, WayOut.MEMORY, WayOut.FILE_LOCK, WayOut.PROCESS, WayOut.SYSTEM)
SOME = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def blocked(
    tid: int, *frames: str, wait: Wait = Wait.LOCK, state: str = "S", **call: object
) -> ThreadSeen:
    explained = msgspec.convert({"on": f"lock {tid:#x}", **call}, Blocked)
    return ThreadSeen(
        tid=tid, name="python", state=state, cpu=1.0, wait=wait, frames=frames or (MAIN,),
        blocked=explained,
    )  # fmt: skip


def process(pid: int, *threads: ThreadSeen, **fields: object) -> ProcessSeen:
    given_fields: dict[str, object] = {
        "pid": pid, "parent": TRAINER, "name": "python", "python": True, "read_bytes": 0,
        "written_bytes": 0, "rss_bytes": 0, "threads": threads, "handlers": (2, 17),
    }  # fmt: skip
    return msgspec.convert(given_fields | fields, ProcessSeen)


def found(*processes: ProcessSeen, pages: list[Page] | None = None, at: float = 0.0) -> WaitSet:
    heartbeats = tuple(page.heartbeat() for page in pages or [Page(step=99, beats=500)])
    return wait_set(Snapshot(at=at, processes=processes, stacks=True), heartbeats, known())


def ways(one: WaitSet) -> set[WayOut]:
    return {each.way for each in one.exits}


def test_two_threads_that_wait_for_each_other_are_closed_and_said_so() -> None:
    one = found(process(TRAINER, blocked(TRAINER, pids=(TRAINER,)), blocked(7, pids=(TRAINER,))))

    assert one.closed
    assert prove((one, one)).closed
    text = sentences(one)
    assert text[0] == (
        f"the training thread of process {TRAINER} waits for lock 0x64 at train.py:40 main;"
        f" only thread 7 of process {TRAINER} could end this wait."
    )
    assert text[-1].startswith("Nothing else can end this wait")


WAYS_OUT: dict[str, tuple[WayOut, ThreadSeen]] = {
    "a timeout": (WayOut.TIMEOUT, blocked(7, left=20.0, pids=(TRAINER,))),
    "a timeout that is nearly over": (WayOut.TIMEOUT, blocked(7, left=0.1, pids=(TRAINER,))),
    "a sleep": (WayOut.TIMEOUT, blocked(7, wait=Wait.SLEEP, left=0.0)),
    "a file": (WayOut.DESCRIPTOR, blocked(7, way_out=WayOut.DESCRIPTOR, who="x")),
    "mapped elsewhere": (WayOut.MEMORY, blocked(7, way_out=WayOut.MEMORY, who="x")),
    "a file lock": (WayOut.FILE_LOCK, blocked(7, way_out=WayOut.FILE_LOCK, who="process 9")),
    "it runs": (
        WayOut.RUNS,
        ThreadSeen(tid=7, name="x", state="R", cpu=1, wait=Wait.NOTHING, frames=(MAIN,)),
    ),
    "not understood": (
        WayOut.UNKNOWN,
        ThreadSeen(tid=7, name="x", state="S", cpu=1, wait=Wait.UNKNOWN, frames=(MAIN,)),
    ),
    "a process that was not seen": (WayOut.UNKNOWN, blocked(7, pids=(4711,))),
}


@pytest.mark.parametrize("name", WAYS_OUT)
def test_a_holder_with_a_way_out_opens_the_set(name: str) -> None:
    way, holder = WAYS_OUT[name]

    one = found(process(TRAINER, blocked(TRAINER, pids=(TRAINER,)), holder))

    assert not one.closed
    assert ways(one) == {way}


def test_a_sibling_that_sleeps_with_a_shared_lock_is_alive() -> None:
    sleeper = process(400, blocked(400, wait=Wait.SLEEP, left=0.0))
    waiter = process(300, blocked(300, on="shared lock 0x1", pids=(TRAINER, 300, 400)))
    trainer = process(TRAINER, blocked(TRAINER, on="socket 5", pids=(TRAINER, 300)))

    assert not found(trainer, waiter, sleeper).closed


@pytest.mark.parametrize("wait", [Wait.CHILD, Wait.TREE])
def test_a_thread_that_may_kill_the_child_that_is_waited_for_opens_the_set(wait: Wait) -> None:
    child = process(300, blocked(300, pids=(300,)))
    waiter = blocked(TRAINER, wait=wait, on="process 300", pids=(300,))
    timer = blocked(7, left=60.0, pids=(TRAINER,))  # threading.Timer(60, child.kill)

    assert found(process(TRAINER, waiter), child).closed
    assert ways(found(process(TRAINER, waiter, timer), child)) == {WayOut.TIMEOUT}


def test_a_process_that_sleeps_beside_the_set_may_kill_another_later() -> None:
    waiter = blocked(TRAINER, wait=Wait.CHILD, on="process 300", pids=(300,))
    family = process(TRAINER, waiter, parent=50), process(300, blocked(300, pids=(300,)))
    sleep = blocked(400, wait=Wait.SLEEP, left=0.0)

    assert found(*family, process(400, sleep)).handlers
    worker = msgspec.structs.replace(sleep, frames=(MAIN, WORKER_LOOP))
    assert not found(*family, process(400, worker)).handlers
    agent = process(50, msgspec.structs.replace(sleep, tid=50), parent=1)
    assert not found(*family, agent).handlers  # it started the training, and waits for its end
    alone = process(TRAINER, blocked(TRAINER, pids=(TRAINER,)), handlers=(2,))
    assert not found(alone, process(400, sleep)).handlers  # nobody else's end would free it


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("python3.11/multiprocessing/resource_tracker.py", False),
        ("site-packages/multiprocess/resource_tracker.py", False),  # of datasets: seen with axolotl
        ("home/u/server.py", True),
    ],
)
def test_a_child_that_ends_only_with_its_parent_sends_no_signal(file: str, *, counts: bool) -> None:
    trainer = process(TRAINER, blocked(TRAINER, pids=(TRAINER,)))
    child = process(300, blocked(300, f"main (/{file}:170)", wait=Wait.TREE, pids=(TRAINER,)))

    assert bool(found(trainer, child).handlers) is counts


@pytest.mark.parametrize("number", [14, 26, 27])
def test_a_handler_of_an_alarm_opens_the_set(number: int) -> None:
    one = found(process(TRAINER, blocked(TRAINER, pids=(TRAINER,)), handlers=(2, number)))

    assert ways(one) == {WayOut.SIGNAL}


def test_a_timer_and_unknown_handlers_open_the_set() -> None:
    thread = blocked(TRAINER, pids=(TRAINER,))

    assert ways(found(process(TRAINER, thread, timers=1))) == {WayOut.TIMER}
    assert ways(found(process(TRAINER, thread, handlers=None))) == {WayOut.UNKNOWN}


def test_a_handler_of_sigusr1_asks_for_minutes_but_not_in_pytorchs_own_code() -> None:
    own = process(TRAINER, blocked(TRAINER, pids=(TRAINER,)), handlers=(10,))
    torchs = f"_engine_run_backward ({TORCH}/autograd/graph.py:829)"
    inside = process(TRAINER, blocked(TRAINER, torchs, MAIN, pids=(TRAINER,)), handlers=(10,))

    assert found(own).handlers == (f"process {TRAINER} has a handler for SIGUSR1",)
    assert found(own).closed
    assert found(inside).handlers == ()


def loader_wait(left: float = 5.0, *, whole: bool = True, on: str = "pipe 7") -> ThreadSeen:
    frames = (SELECT, GET, f"_try_get_data ({LOADER}:1131)", MAIN)
    return blocked(TRAINER, *frames, on=on, left=left, whole=whole, pids=(TRAINER, WORKER, 300))


def stuck_worker() -> ProcessSeen:
    main = blocked(WORKER, "load (/home/u/data.py:9)", WORKER_LOOP, pids=(WORKER,))
    return process(WORKER, main, blocked(WORKER + 1, FEED, pids=(WORKER,)))


def idle_worker() -> ProcessSeen:
    frames = (SELECT, GET, WORKER_LOOP)
    pids = (TRAINER, WORKER, 300)
    return process(300, blocked(300, *frames, on="pipe 8", left=5.0, whole=True, pids=pids))


BAR = blocked(105, "refresh (/home/u/train.py:9)", wait=Wait.SLEEP, left=0.0)


def test_the_loader_asks_its_workers_for_ever_and_a_bar_beside_it_does_not_matter() -> None:
    feeder = blocked(104, FEED, pids=(TRAINER,))

    one = found(process(TRAINER, loader_wait(), feeder, BAR), stuck_worker(), idle_worker())

    assert one.closed, one.exits
    assert prove((one, one)).closed


@pytest.mark.parametrize("seconds", [1.0, 3.0, 20.0])
def test_a_timeout_that_the_user_gave_the_loader_is_a_timeout(seconds: float) -> None:
    one = found(process(TRAINER, loader_wait(seconds)), stuck_worker(), idle_worker())

    assert ways(one) == {WayOut.TIMEOUT}


def test_the_same_wait_in_a_users_own_code_is_a_timeout() -> None:
    frames = (SELECT, GET, MAIN, f"_try_get_data ({LOADER}:1131)")
    thread = blocked(TRAINER, *frames, on="pipe 7", left=5.0, whole=True, pids=(WORKER,))

    assert ways(found(process(TRAINER, thread), stuck_worker())) == {WayOut.TIMEOUT}


def test_a_thread_that_pins_memory_must_be_seen_to_ask_again() -> None:
    """What remains of a timeout may be the end of a long one."""
    frames = (SELECT, GET, f"do_one_step ({TORCH}/utils/data/_utils/pin_memory.py:28)")
    pinning = blocked(104, *frames, on="pipe 7", left=5.0, whole=True, pids=(TRAINER, WORKER))
    waits = [
        found(
            process(TRAINER, loader_wait(left, whole=False, on="lock 0x5"), pinning),
            stuck_worker(),
            at=at,
        )
        for at, left in ((0.0, 3.0), (1.0, 2.0), (2.0, 1.0), (3.5, 4.5))
    ]

    assert all(one.closed for one in waits)
    assert ways(prove(waits[:3])) == {WayOut.TIMEOUT}
    assert prove(waits).closed


def test_a_collective_waits_for_every_rank_and_its_long_timeout_is_a_watchdogs() -> None:
    reduce = f"all_reduce ({TORCH}/distributed/distributed_c10d.py:3007)"
    pages = [Page(pid=500, rank=0, world=2, beats=9), Page(pid=600, rank=1, world=2, beats=9)]
    zero = process(500, blocked(500, reduce, MAIN, wait=Wait.SLEEP, left=1790.0, pids=(500,)))
    stuck = process(600, blocked(600, pids=(600,)))
    asleep = process(600, blocked(600, wait=Wait.SLEEP, left=0.0))
    soon = process(500, blocked(500, reduce, MAIN, wait=Wait.SLEEP, left=20.0, pids=(500,)))

    assert found(zero, stuck, pages=pages).closed
    assert not found(zero, asleep, pages=pages).closed
    assert not found(soon, stuck, pages=pages).closed
    assert not found(zero, stuck, pages=[Page(pid=500, rank=0, world=16, beats=9)]).closed


@pytest.mark.parametrize(
    "reduce",
    [
        f"all_reduce ({TORCH}/distributed/distributed_c10d.py:3007)",
        f"backward ({TORCH}/autograd/__init__.py:395)",  # of DDP: in a lock of its reducer
    ],
)
def test_ranks_of_several_hosts_may_wait_for_data_that_is_sent_again(reduce: str) -> None:
    pages = tuple(
        Page(pid=pid, rank=rank, world=2, beats=9).heartbeat()
        for rank, pid in enumerate((500, 600))
    )
    zero = process(500, blocked(500, reduce, MAIN, wait=Wait.LOCK, pids=(500,)))
    one = process(600, blocked(600, reduce, MAIN, wait=Wait.LOCK, pids=(600,)), unanswered=1)
    snapshot = Snapshot(at=0.0, processes=(zero, one), stacks=True)

    assert ways(wait_set(snapshot, pages, known(), apart=True)) == {WayOut.NETWORK}
    assert wait_set(snapshot, pages, known()).closed  # of one host: it has another reason


@pytest.mark.parametrize(
    "change", [{"cpu": 2.0}, {"blocked": Blocked(on="lock 0x2", pids=(TRAINER,))}]
)
def test_what_changes_between_two_looks_opens_the_set(change: dict[str, object]) -> None:
    thread = blocked(TRAINER, pids=(TRAINER,))
    before = found(process(TRAINER, thread), at=0.0)
    after = found(process(TRAINER, msgspec.structs.replace(thread, **change)), at=1.0)

    assert ways(prove((before, after))) == {WayOut.MOVED}


@pytest.mark.parametrize("handlers", [(11,), (2,), (10,)])
def test_pause_may_end_by_a_signal(handlers: tuple[int, ...]) -> None:
    """Also by one without a handler: an alarm that ends the process."""
    thread = blocked(TRAINER, wait=Wait.SIGNAL, on="a signal")
    of_worker = blocked(TRAINER, MAIN, WORKER_LOOP, wait=Wait.SIGNAL, on="a signal")

    assert not found(process(TRAINER, thread, handlers=handlers)).closed
    assert found(process(TRAINER, of_worker, handlers=(11,))).closed


EVENT = ("Condition.wait (threading.py:331)", "Event.wait (threading.py:629)")
ASYNCIO = (
    "EpollSelector.select (python3.11/selectors.py:468)",
    "BaseEventLoop._run_once (python3.11/asyncio/base_events.py:1878)",
)
QUEUE = ("Condition.wait (threading.py:331)", "Queue.get (queue.py:171)")


@pytest.mark.parametrize(
    ("frames", "number", "counts"),
    [
        (EVENT, 15, True), (EVENT, 28, True), (EVENT[:1], 15, True), (ASYNCIO, 15, True),
        (EVENT, 23, True), (QUEUE, 23, True),
        (EVENT, 2, False), (QUEUE, 15, False), ((), 15, False),
    ],
)  # fmt: skip
def test_a_handler_of_sigterm_counts_for_what_waits_to_be_told(
    frames: tuple[str, ...],
    number: int,
    counts: bool,  # noqa: FBT001 - a case of the table
) -> None:
    thread = blocked(TRAINER, *frames, MAIN, pids=(TRAINER,))

    assert bool(found(process(TRAINER, thread, handlers=(2, number))).handlers) is counts


TRACKER = "run (/venv/lib/python3.12/site-packages/wandb/sdk/wandb_run.py:9)"
SERVES = blocked(8, TRACKER, wait=Wait.SLEEP, left=0.0)


def test_a_thread_that_only_serves_is_left_out_unless_its_service_is_waited_for() -> None:
    own = blocked(TRAINER, pids=(TRAINER,))
    served = blocked(TRAINER, SELECT, TRACKER, MAIN, pids=(TRAINER,))
    for_the_user = blocked(8, "collect (/home/u/t.py:3)", TRACKER, wait=Wait.SLEEP, left=0.0)

    assert found(process(TRAINER, own, SERVES)).closed
    assert not found(process(TRAINER, served, SERVES)).closed
    assert not found(process(TRAINER, own, for_the_user)).closed


def test_a_queue_whose_thread_cannot_write_waits_for_those_who_read() -> None:
    """As at exit: the main thread joins the queue's own, and the child that reads is slow."""
    idle, full = (
        blocked(104, FEED, pids=(TRAINER,)),
        blocked(104, FEED, wait=Wait.TREE, on="pipe 9", pids=(TRAINER, 300), holds_both=True),
    )
    main = blocked(TRAINER, pids=(TRAINER,))
    reader = process(300, blocked(300, wait=Wait.SLEEP, left=0.0))

    assert found(process(TRAINER, main, idle), reader).closed
    assert ways(found(process(TRAINER, main, full), reader)) == {WayOut.TIMEOUT}


def test_a_native_stack_that_is_younger_than_the_call_is_no_wait_for_the_gil() -> None:
    child = process(300, blocked(300, wait=Wait.SLEEP, left=0.0))
    waits = blocked(TRAINER, wait=Wait.CHILD, on="process 300", pids=(300,))
    main = msgspec.structs.replace(waits, native=("take_gil",))

    assert ways(found(process(TRAINER, main), child)) == {WayOut.TIMEOUT}


def test_batches_may_come_from_any_thread_of_a_process_that_is_not_seen_to_be_a_worker() -> None:
    main = blocked(WORKER, "load (/home/u/data.py:9)", pids=(TRAINER,), on="pipe 8")
    worker = process(WORKER, main, blocked(WORKER + 1, wait=Wait.SLEEP, left=0.0))

    assert ways(found(process(TRAINER, loader_wait()), worker)) >= {WayOut.TIMEOUT}


@pytest.mark.parametrize("wait", [Wait.STOPPED, Wait.TRACED])
def test_a_process_with_a_stopped_thread_is_stopped_whatever_the_others_seem_to_do(
    wait: Wait,
) -> None:
    stopped = ThreadSeen(tid=7, name="x", state="T", cpu=1, wait=wait, frames=(MAIN,))
    child = process(300, blocked(300, wait=Wait.CHILD, on="process 100", pids=(TRAINER,)))
    main = blocked(TRAINER, wait=Wait.CHILD, on="process 300", pids=(300,))

    one = found(process(TRAINER, main, stopped), child)

    assert not one.closed
    assert one.members[0].activity in (Activity.STOPPED, Activity.DEBUGGED)


def test_threads_that_nobody_expects_to_end_a_wait_count_for_the_proof_only() -> None:
    worker = process(WORKER, blocked(WORKER, on="shared lock 0x5", pids=(TRAINER, WORKER)))
    main = blocked(TRAINER, wait=Wait.TREE, on="pipe 7", pids=(TRAINER, WORKER), holds_both=True)

    one = found(process(TRAINER, main, BAR), worker)

    assert ways(one) == {WayOut.TIMEOUT}
    assert [member.key for member in one.members if member.bystander] == [(TRAINER, BAR.tid)]


def test_a_rank_that_a_late_look_left_out_opens_the_set() -> None:
    pages = [Page(pid=500, rank=0, world=2, beats=9), Page(pid=600, rank=1, world=2, beats=9)]

    assert ways(found(process(500, blocked(500, pids=(500,))), pages=pages)) == {WayOut.UNKNOWN}


@dataclass
class World:
    """A random tree of waits, and which of its threads could ever go on."""

    processes: dict[int, list[ThreadSeen]] = field(default_factory=dict)
    handlers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    timers: dict[int, int] = field(default_factory=dict)

    def seen(self) -> tuple[ProcessSeen, ...]:
        return tuple(
            process(pid, *threads, handlers=self.handlers[pid], timers=self.timers[pid])
            for pid, threads in self.processes.items()
        )

    def free(self) -> set[tuple[int, int]]:
        """Return the threads that go on sooner or later: an independent, forward reckoning."""
        going: set[tuple[int, int]] = set()
        while True:
            more = {
                (pid, thread.tid)
                for pid, threads in self.processes.items()
                for thread in threads
                if self._goes_on(pid, thread, going)
            }
            if more == going:
                return going
            going = more

    def _goes_on(self, pid: int, thread: ThreadSeen, going: set[tuple[int, int]]) -> bool:
        call = thread.blocked
        if call is None or call.left is not None or call.way_out is not None:
            return True
        if self.timers[pid] or 14 in self.handlers[pid]:
            return True
        return any(
            (other, each.tid) in going
            for other in call.pids
            for each in self.processes.get(other, ())
            if (other, each.tid) != (pid, thread.tid)
        ) or any(other not in self.processes for other in call.pids)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    pids = [TRAINER, 200, 300][: draw(st.integers(1, 3))]
    world = World()
    rarely = st.integers(0, 11).map(lambda n: n == 0)
    for pid in pids:
        world.handlers[pid] = (2, 14) if draw(rarely) else (2, 17)
        world.timers[pid] = int(draw(rarely))
        world.processes[pid] = []
        for offset in range(draw(st.integers(1, 3))):
            wanted = draw(st.lists(st.sampled_from([*pids, pid]), min_size=1, max_size=2))
            if draw(rarely):
                wanted.append(999)
            thread = blocked(
                pid + offset,
                pids=tuple(sorted(set(wanted))),
                left=draw(st.floats(0, 2000)) if draw(rarely) else None,
                way_out=draw(st.sampled_from(OUTSIDE)) if draw(rarely) else None,
            )
            if draw(rarely):
                thread = msgspec.structs.replace(thread, blocked=None, wait=Wait.NOTHING)
            world.processes[pid].append(thread)
    return world


@SOME
@given(worlds())
def test_no_graph_with_a_way_out_is_called_closed_and_every_other_is(world: World) -> None:
    one = found(*world.seen())
    proof = prove((one, msgspec.structs.replace(one, at=1.0)))

    members = {member.key for member in one.members}
    assert proof.closed == (not members & world.free())
    assert bool(one.exits) != one.closed


# When a process is worth a stop.


def deciding(before: ProcessSeen | None, *now: ProcessSeen) -> set[int]:
    pulse = begin(0.0, 0.0)
    pages = (Page(step=99, beats=500).heartbeat(),)
    first = Snapshot(at=1.0, processes=(before,), stacks=True) if before else None
    pulse = msgspec.structs.replace(pulse, heartbeats=pages, before=first)
    seen = Snapshot(at=2.0, processes=now, stacks=True)
    return set(worth_stopping(pulse, seen, known()))


def test_a_process_is_stopped_only_where_all_but_its_native_code_says_hung() -> None:
    running = ThreadSeen(
        tid=TRAINER, name="python", state="R", cpu=1.0, wait=Wait.NOTHING, frames=(MAIN,)
    )
    still = process(TRAINER, running)

    assert deciding(still, still) == {TRAINER}
    assert not deciding(None, still)  # never at the first look
    elsewhere = msgspec.structs.replace(running, frames=("main (/home/u/train.py:41)",))
    assert not deciding(process(TRAINER, elsewhere), still)  # it moves
    asleep = process(TRAINER, blocked(TRAINER, wait=Wait.SLEEP, left=0.0))
    assert not deciding(asleep, asleep)  # it sleeps, whatever native code it is in
    locked = blocked(TRAINER, pids=(TRAINER,))
    assert deciding(process(TRAINER, locked), process(TRAINER, locked)) == {TRAINER}
    beside = process(TRAINER, locked, blocked(7, wait=Wait.SLEEP, left=0.0))
    assert not deciding(beside, beside)  # a thread beside it sleeps
