"""What must hold whatever is seen."""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocsteady.hangs.judgment.judgment import begin, judge, learn
from rocsteady.hangs.judgment.verdict import Patience
from rocsteady.hangs.values import (
    Blocked,
    Heartbeat,
    Output,
    ProcessSeen,
    Snapshot,
    ThreadSeen,
    Tick,
    Wait,
    WayOut,
)
from rocsteady.model import RunState
from tests.hangs.verdicts.simulate import TRAINER, known, thread

PATIENCE = Patience()
PIDS = st.integers(min_value=1, max_value=6)
ANY_FLOAT = st.floats(width=32)
FRAMES = st.sampled_from(
    [
        "load (/home/u/data.py:3)",
        "wait (/usr/lib/python3.12/threading.py:359)",
        "all_reduce (/x/site-packages/torch/distributed/distributed_c10d.py:1)",
        "run (/x/site-packages/tqdm/_monitor.py:60)",
        "trace_dispatch (/usr/lib/python3.12/bdb.py:1)",
        "wait (/usr/lib/python3.12/multiprocessing/synchronize.py:280)",
        "not a frame",
        "",
    ]
)
NATIVE = st.sampled_from(["hipStreamSynchronize", "pthread_cond_wait", "AsyncEventsLoop", ""])
SOME = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def stacks(names: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...] | None]:
    return st.none() | st.lists(names, max_size=3).map(tuple)


BLOCKED = st.builds(
    Blocked,
    on=st.sampled_from(["lock 0x1", "pipe 7", "socket 8", "time", "the GIL"]),
    left=st.none() | st.floats(0, 100),
    whole=st.booleans(),
    pids=st.lists(PIDS, max_size=2).map(tuple),
    way_out=st.none() | st.sampled_from(WayOut),
)
THREADS = st.builds(
    ThreadSeen,
    tid=PIDS,
    name=st.sampled_from(["python", "gloo_tcp_loop"]),
    state=st.sampled_from("RSDTtZ"),
    cpu=st.floats(0, 1000),
    wait=st.sampled_from(Wait),
    blocked=st.none() | BLOCKED,
    frames=stacks(FRAMES),
    native=stacks(NATIVE),
)
PROCESSES = st.builds(
    ProcessSeen,
    pid=PIDS,
    parent=PIDS,
    name=st.just("python"),
    python=st.booleans(),
    read_bytes=st.integers(0, 1 << 20),
    written_bytes=st.integers(0, 1 << 20),
    rss_bytes=st.integers(0, 1 << 20),
    threads=st.lists(THREADS, max_size=3).map(tuple),
)
TREES = st.lists(PROCESSES, max_size=4).map(tuple)
HEARTBEATS = st.builds(
    Heartbeat,
    pid=PIDS,
    rank=st.none() | st.integers(0, 2),
    world=st.none() | st.integers(0, 3),
    thread=PIDS,
    step=st.integers(0, 30),
    beats=st.integers(0, 300),
    phase=st.sampled_from(["starting", "data", "compute", "checkpoint", "?"]),
    since=ANY_FLOAT,
    last_step=st.none() | ANY_FLOAT,
    ended=st.booleans(),
    raised=st.booleans(),
    total=st.none() | st.integers(),
    seconds_in=st.just({}),
    longest_in=st.dictionaries(st.sampled_from(["data", "compute"]), ANY_FLOAT),
    histogram=st.dictionaries(
        st.sampled_from(["data", "compute"]),
        st.lists(st.integers(0, 50), max_size=70).map(tuple),
    ),
)
HISTORIES = st.lists(
    st.tuples(ANY_FLOAT, ANY_FLOAT, st.lists(HEARTBEATS, max_size=3).map(tuple), TREES),
    max_size=8,
)


@SOME
@given(HISTORIES)
def test_no_input_raises(
    history: list[tuple[float, float, tuple[Heartbeat, ...], tuple[ProcessSeen, ...]]],
) -> None:
    pulse = begin(0.0, 0.0)
    snapshots: tuple[Snapshot, ...] = ()
    for at, boot, heartbeats, tree in history:
        snapshots = (*snapshots, Snapshot(at=at, processes=tree, stacks=True))
        tick = Tick(at=at, boot=boot, heartbeats=heartbeats, output=Output(), alive=True)
        pulse, verdict = judge(pulse, tick, snapshots, PATIENCE, known())
        assert verdict.why
    learn(pulse)


STUCK = ProcessSeen(
    pid=1, parent=0, name="python", python=True, read_bytes=0, written_bytes=0, rss_bytes=0,
    threads=(thread(1, Wait.LOCK, "main (/home/u/train.py:3)"),),
)  # fmt: skip


def told(steps: int, phase: str = "compute") -> Heartbeat:
    return Heartbeat(
        pid=1, rank=None, world=None, thread=1, step=steps, beats=steps, phase=phase, since=0.0,
        last_step=0.0, ended=False, raised=False, total=None, seconds_in={},
        longest_in={phase: 0.01}, histogram={},
    )  # fmt: skip


@SOME
@given(
    TREES,
    st.lists(st.tuples(st.floats(0.1, 4.0), st.integers(0, 9)), min_size=5, max_size=60),
    st.sampled_from([0, 5, 500]),
)
def test_hung_takes_looks_that_agree_and_judging_changes_nothing(
    now_and_then: tuple[ProcessSeen, ...], moments: list[tuple[float, int]], steps: int
) -> None:
    pulse, now = begin(0.0, 0.0), 0.0
    snapshots: tuple[Snapshot, ...] = ()
    for passed, choice in moments:
        now += passed
        if choice < 8:  # mostly the same: a thread in a lock
            tree = now_and_then if choice == 0 else (STUCK,)
            snapshots = (*snapshots, Snapshot(at=now, processes=tree, stacks=True))
        tick = Tick(at=now, boot=now, heartbeats=(told(steps),), output=Output(), alive=True)
        before = msgspec.json.encode((pulse, tick, snapshots))
        first = judge(pulse, tick, snapshots, PATIENCE, known())
        assert first == judge(pulse, tick, snapshots, PATIENCE, known())
        assert msgspec.json.encode((pulse, tick, snapshots)) == before
        pulse, verdict = first
        if verdict.condition is RunState.HUNG and verdict.quiet < 1800:
            assert len(snapshots) >= PATIENCE.samples
            assert pulse.agreed >= PATIENCE.samples
            agreeing = snapshots[-pulse.agreed :]
            assert snapshots[-1].at - agreeing[0].at >= PATIENCE.sample_span.total_seconds()


@SOME
@given(TREES, st.sampled_from(Wait))
def test_a_training_thread_that_moves_is_not_hung_before_the_long_budget(
    others: tuple[ProcessSeen, ...], wait: Wait
) -> None:
    pulse = begin(0.0, 0.0)
    snapshots: tuple[Snapshot, ...] = ()
    rest = tuple(other for other in others if other.pid != TRAINER)
    beat = msgspec.structs.replace(told(500), pid=TRAINER, thread=TRAINER)
    for second in range(1, 200, 4):
        main = thread(TRAINER, wait, f"main (/home/u/train.py:{second})")
        trainer = ProcessSeen(
            pid=TRAINER, parent=1, name="python", python=True, read_bytes=0, written_bytes=0,
            rss_bytes=0, threads=(main,),
        )  # fmt: skip
        snapshots = (
            *snapshots,
            Snapshot(at=float(second), processes=(trainer, *rest), stacks=True),
        )
        tick = Tick(
            at=float(second), boot=float(second), heartbeats=(beat,), output=Output(), alive=True
        )
        pulse, verdict = judge(pulse, tick, snapshots, PATIENCE, known())
        assert verdict.condition is not RunState.HUNG
