"""Hangs that must be found, each within its time from the last step, with its place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rocsteady.hangs.judgment.judgment import interrupted
from rocsteady.hangs.judgment.snapshot_reading import read
from rocsteady.hangs.judgment.verdict import Patience
from rocsteady.hangs.proof.wait_graph import wait_set
from rocsteady.hangs.values import ProcessSeen, Snapshot, ThreadSeen, Wait
from rocsteady.model import RunState
from tests.hangs.verdicts.simulate import (
    TORCH,
    TRAINER,
    WORKER,
    WORKER_LOOP,
    Page,
    Quiet,
    Said,
    Simulation,
    Steps,
    Tree,
    fetching,
    first,
    known,
    openmp,
    process,
    thread,
)


def of(*processes: ProcessSeen) -> Tree:
    return lambda _: processes


def hang(
    tree: Tree,
    *,
    seconds: float = 60,
    pages: list[Page] | None = None,
    gpu_signs: tuple[str, ...] = (),
    hang_after: float | None = None,
) -> tuple[Said, float]:
    """Return the verdict, and how long after the last step it was said."""
    limit = None if hang_after is None else timedelta(seconds=hang_after)
    simulation = Simulation(pages, Patience(hang_after=limit))
    simulation.run(Steps(seconds=6))
    last_step = simulation.now
    tick = 1 if seconds > 600 else 0.2
    simulation.run(Quiet(seconds=seconds, tree=tree, tick=tick, gpu_signs=gpu_signs))
    hung = first(simulation.said, RunState.HUNG)
    assert hung is not None, simulation.said[-1].verdict
    return hung, hung.at - last_step


def gil_held(_: float) -> tuple[ProcessSeen, ...]:
    frames = (
        "fused_backward (/home/u/train.py:41)",
        f"_engine_run_backward ({TORCH}/autograd/graph.py:829)",
    )
    native = ("__lll_lock_wait", "pthread_mutex_lock", "torch::autograd::PyNode::apply")
    bar = thread(103, Wait.LOCK, "refresh (/home/u/train.py:9)")  # it wants the GIL
    main = thread(TRAINER, Wait.LOCK, *frames, native=native)
    return (process(TRAINER, main, *openmp(TRAINER), bar),)


def stuck_worker(*, wait: Wait = Wait.LOCK, waits_for: tuple[int, ...] = ()) -> ProcessSeen:
    frames = ("read_sample (/home/u/data.py:88)", WORKER_LOOP)
    main = thread(WORKER, wait, *frames, waits_for=waits_for)
    feeder = thread(
        WORKER + 1, Wait.LOCK, "_feed (/usr/lib/python3.12/multiprocessing/queues.py:1)"
    )
    return process(WORKER, main, feeder)


def idle_worker() -> ProcessSeen:
    frames = ("poll (/usr/lib/python3.12/multiprocessing/connection.py:1)", WORKER_LOOP)
    return process(300, thread(300, Wait.TREE, *frames, waits_for=(TRAINER,)))


def bar(now: float) -> ThreadSeen:
    return thread(105, Wait.SLEEP, "refresh (/home/u/train.py:9)", cpu=1 + now / 1000)


def with_tracker(now: float) -> tuple[ProcessSeen, ...]:
    tracker = process(
        400,
        thread(400, Wait.SLEEP, "<module> (<string>:5)", cpu=1 + now / 1000),
        written_bytes=int(now / 5) * 60,
    )
    main = process(TRAINER, fetching(), bar(now), written_bytes=int(now * 2) * 80)
    return main, stuck_worker(), idle_worker(), tracker


def full_pipe(_: float) -> tuple[ProcessSeen, ...]:
    """Wait for a child that cannot write, because nobody reads."""
    frames = ("_try_wait (/usr/lib/python3.12/subprocess.py:2004)", "pack (/home/u/train.py:21)")
    main = thread(TRAINER, Wait.CHILD, *frames, waits_for=(700,))
    child = thread(700, Wait.TREE, "<module> (<string>:1)", waits_for=(TRAINER,))
    return process(TRAINER, main), process(700, child, parent=TRAINER)


def in_backward(now: float) -> tuple[ProcessSeen, ...]:
    """Have rank 0 in the collective of its backward; its native frames could not be read."""
    agent, zero, one = two_ranks(now)
    frames = (f"_engine_run_backward ({TORCH}/autograd/graph.py:829)", "main (/home/u/train.py:46)")
    return agent, process(500, thread(500, Wait.LOCK, *frames), *zero.threads[1:]), one


def two_ranks(_: float) -> tuple[ProcessSeen, ...]:
    """Rank 1 never comes to the all_reduce; gloo's own threads wait with the collective's time."""
    loops = [thread(1100 + number, Wait.WORLD, name="gloo_tcp_loop") for number in range(2)]
    waits = [thread(1200, Wait.SLEEP, name="pt_gloo_runloop")]
    reduce = f"all_reduce ({TORCH}/distributed/distributed_c10d.py:3007)"
    zero = thread(
        500, Wait.LOCK, reduce, "main (/home/u/train.py:46)", native=("c10d::Work::wait",)
    )
    one = thread(600, Wait.LOCK, "flush_metrics (/home/u/train.py:31)", "add (/home/u/train.py:28)")
    agent = thread(
        TRAINER, Wait.SLEEP, f"_invoke_run ({TORCH}/distributed/elastic/agent/server/api.py:900)"
    )
    return (
        process(TRAINER, agent),
        process(500, zero, *openmp(500), *loops, *waits),
        process(600, one, *openmp(600), *loops),
    )


def ranks() -> list[Page]:
    return [Page(pid=500, rank=0, world=2), Page(pid=600, rank=1, world=2)]


HANGS: dict[str, tuple[Callable[[float], tuple[ProcessSeen, ...]], str, int | None]] = {
    "a: backward holds the GIL": (gil_held, "train.py:41 fused_backward", None),
    "b: a worker at a semaphore": (
        of(process(TRAINER, fetching()), stuck_worker(), idle_worker()),
        "data.py:88 read_sample",
        WORKER,
    ),
    "b: a worker at a pipe inside the tree": (
        of(process(TRAINER, fetching()), stuck_worker(wait=Wait.TREE, waits_for=(WORKER,))),
        "data.py:88 read_sample",
        WORKER,
    ),
    "b: the same behind a pin-memory thread, beside a thread in the driver": (
        of(
            process(
                TRAINER,
                thread(
                    TRAINER,
                    Wait.LOCK,
                    "wait (/usr/lib/python3.12/threading.py:359)",
                    f"_try_get_data ({TORCH}/utils/data/dataloader.py:1131)",
                ),
                thread(
                    104,
                    Wait.TREE,
                    f"do_one_step ({TORCH}/utils/data/_utils/pin_memory.py:28)",
                    waits_for=(WORKER,),
                ),
                thread(105, Wait.DEVICE),
            ),
            stuck_worker(),
        ),
        "data.py:88 read_sample",
        WORKER,
    ),
    "c: one rank does not come to all_reduce": (two_ranks, "train.py:31 flush_metrics", 600),
    "c: one rank does not come to the backward of the other": (
        in_backward,
        "train.py:31 flush_metrics",
        600,
    ),
    "d: a lock held across a fork": (
        of(process(TRAINER, fetching()), stuck_worker()),
        "data.py:88 read_sample",
        WORKER,
    ),
    "e: as b, with a tracker and a bar": (with_tracker, "data.py:88 read_sample", WORKER),
    "g: a child that writes to a full pipe": (full_pipe, "train.py:21 pack", 700),
}


@pytest.mark.parametrize("name", HANGS)
def test_stuck_is_said_within_12_seconds_with_its_place(name: str) -> None:
    tree, place, culprit = HANGS[name]

    hung, delay = hang(tree, pages=ranks() if name.startswith("c") else None)

    assert delay <= 12
    assert (hung.verdict.place, hung.verdict.culprit) == (place, culprit)


def spinning(*native: str) -> Tree:
    return lambda now: (
        process(
            TRAINER,
            thread(TRAINER, Wait.NOTHING, "main (/home/u/train.py:55)", native=native, cpu=now),
            thread(103, Wait.SLEEP),
        ),
    )


DEVICE = spinning("clock_gettime", "hsa_signal_wait_scacquire", "hipDeviceSynchronize")


RING = ("the kernel says: ring gfx_0.0.0 timeout",)


def test_f_a_device_wait_with_a_second_sign_is_said_within_45_seconds() -> None:
    hung, delay = hang(DEVICE, gpu_signs=RING)

    assert 35 <= delay <= 45
    assert hung.verdict.place == "train.py:55 main"


def test_a_device_wait_without_a_second_sign_has_5_minutes() -> None:
    assert 300 <= hang(DEVICE, seconds=400)[1] <= 330


def test_a_device_wait_has_10_times_the_longest_that_ended_in_this_run() -> None:
    simulation = Simulation()
    simulation.run(Steps(seconds=6), Quiet(seconds=40, tree=DEVICE), Steps(seconds=6))
    last_step = simulation.now
    simulation.run(Quiet(seconds=500, tree=DEVICE))

    hung = first(simulation.said, RunState.HUNG)

    assert hung is not None
    assert 395 <= hung.at - last_step <= 435


def test_a_device_wait_that_calls_the_clock_in_some_looks_is_still_the_same_wait() -> None:
    def tree(now: float) -> tuple[ProcessSeen, ...]:
        inner = ("clock_gettime",) if int(now) % 2 else ()
        return spinning(*inner, "rocr::core::BusyWaitSignal::WaitRelaxed(hsa_signal_t)")(now)

    assert hang(tree, gpu_signs=RING)[1] <= 45


@pytest.mark.parametrize(
    "wait", [Wait.SLEEP, Wait.WORLD, Wait.DISK, Wait.NOTHING], ids=lambda wait: wait.name
)
def test_a_limit_of_the_users_own_counts_from_the_last_progress(wait: Wait) -> None:
    def tree(now: float) -> tuple[ProcessSeen, ...]:
        return (process(TRAINER, thread(TRAINER, wait, f"f (/u/t.py:{int(now * 3) % 5})")),)

    assert 15 <= hang(tree, hang_after=15)[1] <= 15.5


def test_before_the_first_step_such_a_limit_is_no_shorter_than_a_start_may_take() -> None:
    simulation = Simulation(patience=Patience(hang_after=timedelta(seconds=15)))
    began = simulation.now
    simulation.run(
        Quiet(seconds=130, tree=of(process(TRAINER, thread(TRAINER, Wait.SLEEP, "f (/u/t.py:1)"))))
    )

    hung = first(simulation.said, RunState.HUNG)

    assert hung is not None
    assert 100 <= hung.at - began <= 101


def beating(_: float) -> tuple[ProcessSeen, ...]:
    """Give a deadlock beside a thread that prints "beat 12"."""
    main = thread(TRAINER, Wait.LOCK, "main (/home/u/train.py:40)")
    return (process(TRAINER, main, thread(103, Wait.SLEEP, "beat (/home/u/train.py:9)")),)


def test_a_printed_counter_does_not_outvote_the_step() -> None:
    simulation = Simulation()
    simulation.run(Steps(seconds=6))
    last_step = simulation.now
    simulation.run(Quiet(seconds=2000, tree=beating, counts_every=1, tick=1))

    slow, hung = (first(simulation.said, word) for word in (RunState.SLOW, RunState.HUNG))
    assert slow is not None
    assert hung is not None
    assert slow.at - last_step <= 35
    assert hung.at - last_step == pytest.approx(1800, abs=40)


def test_a_counter_beside_a_closed_set_keeps_it_from_being_proven() -> None:
    simulation = Simulation()
    simulation.run(Steps(seconds=6), Quiet(seconds=60, tree=gil_held, counts_every=1))

    assert first(simulation.said, RunState.HUNG) is None


@pytest.mark.parametrize(
    ("wait", "frames"),
    [(Wait.LOCK, ("build (/home/u/train.py:30)",)), (Wait.LOCK, ("load (/home/u/plugins.py:3)",))],
)
def test_without_any_step_it_is_said_within_120_seconds(wait: Wait, frames: tuple[str]) -> None:
    simulation = Simulation()
    began = simulation.now
    simulation.run(
        Quiet(seconds=130, tree=of(process(TRAINER, thread(TRAINER, wait, *frames), *openmp(100))))
    )

    hung = first(simulation.said, RunState.HUNG)

    assert hung is not None
    assert 100 <= hung.at - began <= 120


def test_an_endless_python_loop_is_said_to_be_slow_within_60_seconds_and_ends_after_3_hours() -> (
    None
):
    def tree(now: float) -> tuple[ProcessSeen, ...]:
        return (process(TRAINER, thread(TRAINER, Wait.NOTHING, f"f (/u/t.py:{int(now * 9) % 7})")),)

    simulation = Simulation()
    simulation.run(Steps(seconds=6))
    last_step = simulation.now
    simulation.run(Quiet(seconds=3.1 * 3600, tree=tree, tick=1))

    slow, hung = (first(simulation.said, word) for word in (RunState.SLOW, RunState.HUNG))
    assert slow is not None
    assert hung is not None
    assert slow.at - last_step <= 60
    assert slow.verdict.place.startswith("t.py:")
    assert hung.at - last_step == pytest.approx(3 * 3600, abs=2)


@pytest.mark.parametrize(
    "tree",
    [
        spinning("mkl_lapack_sgesdd"),
        of(process(TRAINER, thread(TRAINER, Wait.DISK, "load (/u/t.py:1)"))),
        of(process(TRAINER, thread(TRAINER, Wait.DEVICE, "load (/u/t.py:1)"))),
    ],
)
def test_what_cannot_be_told_is_slow_and_ends_after_half_an_hour(tree: Tree) -> None:
    _, delay = hang(tree, seconds=1900)

    assert delay == pytest.approx(1800, abs=2)


def test_without_stacks_there_is_only_the_long_budget() -> None:
    simulation = Simulation()
    simulation.run(Steps(seconds=6))
    last_step = simulation.now
    simulation.run(Quiet(seconds=1900, tree=gil_held, stacks=False, tick=1))

    hung = first(simulation.said, RunState.HUNG)

    assert hung is not None
    assert hung.at - last_step == pytest.approx(1800, abs=2)
    assert "no stacks could be read" in hung.verdict.why


def test_after_work_that_ended_in_a_hang_the_hang_is_found_too() -> None:
    began = 1006.0

    def tree(now: float) -> tuple[ProcessSeen, ...]:
        if now < began + 25:
            frames = (f"decode (/home/u/data.py:{int(now * 7) % 30})",)
            worker = process(WORKER, thread(WORKER, Wait.NOTHING, *frames, cpu=now))
            return process(TRAINER, fetching()), worker
        return process(TRAINER, fetching()), stuck_worker()

    assert 25 + 9 <= hang(tree)[1] <= 25 + 16


@pytest.mark.parametrize(("wait", "word"), [(Wait.STOPPED, "stopped"), (Wait.TRACED, "debugger")])
def test_a_stopped_process_is_said_within_12_seconds_and_is_never_hung(
    wait: Wait, word: str
) -> None:
    simulation = Simulation()
    simulation.run(Steps(seconds=6))
    last_step = simulation.now
    simulation.run(
        Quiet(seconds=400, tree=of(process(TRAINER, thread(TRAINER, wait, "main (/u/t.py:1)"))))
    )

    stopped = first(simulation.said, RunState.STOPPED)

    assert stopped is not None
    assert stopped.at - last_step <= 12
    assert word in stopped.verdict.why
    assert first(simulation.said, RunState.HUNG) is None


def at_exit(tree: Tree, seconds: float) -> Simulation:
    """Train, finish the script's own code, and do something else at exit."""
    simulation = Simulation()
    simulation.run(Steps(seconds=6))
    simulation.pages[0].ended = True
    simulation.run(Quiet(seconds=seconds, tree=tree, phase="finishing", tick=1))
    return simulation


def joining(*others: ThreadSeen, **fields: object) -> tuple[ProcessSeen, ...]:
    main = thread(TRAINER, Wait.LOCK, "_shutdown (/usr/lib/python3.12/threading.py:1624)")
    return (process(TRAINER, main, *others, **fields),)


def test_a_deadlock_at_exit_is_found() -> None:
    waiting = thread(TRAINER + 9, Wait.LOCK, "get (/usr/lib/python3.12/queue.py:171)")
    simulation = at_exit(lambda _: joining(waiting), 60)

    hung = first(simulation.said, RunState.HUNG)

    assert hung is not None
    assert hung.verdict.over
    assert 20 <= hung.verdict.quiet <= 25
    assert hung.verdict.why.startswith("the script has finished but has not exited for 2")


def test_a_thread_that_waits_for_the_world_at_exit_has_the_long_budget() -> None:
    waiting = thread(TRAINER + 9, Wait.WORLD, "sendall (/home/u/upload.py:7)")
    simulation = at_exit(lambda _: joining(waiting), 4000)

    slow, hung = (first(simulation.said, each) for each in (RunState.SLOW, RunState.HUNG))

    assert slow is not None
    assert slow.verdict.over
    assert hung is not None
    assert hung.verdict.quiet >= 1800


@pytest.mark.parametrize(
    "work",
    [
        lambda at: {"wait": Wait.NOTHING, "cpu": at},
        lambda at: {"wait": Wait.WORLD, "switches": int(at)},  # sends on one line for hours
        lambda at: {"wait": Wait.LOCK, "cpu": at / 10},
    ],
    ids=["computes", "sends", "computes and waits"],
)
def test_work_at_exit_is_not_ended_for_hours(work: Callable[[float], dict[str, object]]) -> None:
    def tree(at: float) -> tuple[ProcessSeen, ...]:
        fields = work(at)
        wait = fields.pop("wait")
        assert isinstance(wait, Wait)
        return joining(thread(TRAINER + 9, wait, "work (/home/u/train.py:90)", **fields))

    simulation = at_exit(tree, 10_000)

    assert first(simulation.said, RunState.HUNG) is None
    assert first(simulation.said, RunState.SLOW) is not None


def test_a_script_that_is_starting_is_not_slowed_down_by_stacks() -> None:
    simulation = Simulation()
    began = simulation.now
    imports = of(process(TRAINER, thread(TRAINER, Wait.LOCK, "<module> (/home/u/train.py:3)")))

    simulation.run(Quiet(seconds=30, tree=imports, tick=0.2))

    assert min(said.at for said in simulation.said if said.verdict.examine) >= began + 10


@pytest.mark.parametrize(("lost", "learned"), [(True, False), (False, True)])
def test_nothing_is_learned_from_a_wait_that_ends_with_its_rank(
    *, lost: bool, learned: bool
) -> None:
    """As when another host restarts: the next hang would take four times as long to be found."""
    pids = (TRAINER, TRAINER + 50)
    pages = [Page(pid=pid, rank=rank, world=2) for rank, pid in enumerate(pids)]
    stuck = of(
        *(process(pid, thread(pid, Wait.LOCK, "main (/home/u/train.py:40)")) for pid in pids)
    )
    simulation = Simulation(pages)
    simulation.run(Steps(seconds=20), Quiet(seconds=4.4, tree=stuck))

    if lost:
        simulation.pages.pop()
        simulation.tick(None)
    else:
        simulation.run(Steps(seconds=1))

    assert (simulation.pulse.ended.locked > 0) is learned


def test_a_script_that_caught_an_interrupt_is_not_proven_to_hang_for_minutes() -> None:
    stuck = of(process(TRAINER, thread(TRAINER, Wait.LOCK, "main (/home/u/train.py:40)")))
    simulation = Simulation(None, Patience())
    simulation.run(Steps(seconds=6))
    simulation.run(Quiet(seconds=3, tree=stuck))
    simulation.pulse = interrupted(simulation.pulse, simulation.now)
    began = simulation.now

    simulation.run(Quiet(seconds=400, tree=stuck))

    hung = first(simulation.said, RunState.HUNG)
    assert hung is not None
    assert 300 <= hung.at - began <= 310


@pytest.mark.parametrize(
    "how",
    [{"frames": None}, {"state": "t", "wait": Wait.UNKNOWN, "blocked": None}],
    ids=["no stack", "still stopped by py-spy"],
)
def test_a_snapshot_that_could_not_be_read_does_not_refute_the_others(how: dict[str, Any]) -> None:
    stuck = thread(TRAINER, Wait.LOCK, "main (/home/u/train.py:40)")
    unread = msgspec.structs.replace(stuck, **how)
    simulation = Simulation()
    simulation.run(Steps(seconds=6))
    began = simulation.now

    def tree(now: float) -> tuple[ProcessSeen, ...]:
        return (process(TRAINER, unread if 3 < now - began < 4.2 else stuck),)

    simulation.run(Quiet(seconds=30, tree=tree))

    hung = first(simulation.said, RunState.HUNG)
    assert hung is not None
    assert hung.at - began <= 6


def test_the_line_is_that_of_the_thread_that_trains_not_of_the_one_that_joins_or_polls() -> None:
    page = Page(step=99, beats=500)
    trains = thread(7, Wait.LOCK, "train (/home/u/train.py:9)")
    join = "Thread.join (/usr/lib/python3.12/threading.py:1149)", "<module> (/home/u/train.py:20)"
    waits = [thread(TRAINER, Wait.LOCK, *join), thread(TRAINER, Wait.SLEEP, join[1])]
    for main in waits:
        snapshot = Snapshot(at=1.0, processes=(process(TRAINER, main, trains),), stacks=True)
        beats = (msgspec.structs.replace(page.heartbeat(), thread=7),)
        found = wait_set(snapshot, beats, known())
        assert read(None, snapshot, found, beats, known()).place == "train.py:9 train"
