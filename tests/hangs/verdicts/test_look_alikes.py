"""Runs that look hung and are not. None of them may ever be called hung."""

from __future__ import annotations

import pytest

from rocsteady.hangs.judgment.verdict import Patience
from rocsteady.hangs.values import Blocked, ProcessSeen, ThreadSeen, Wait
from rocsteady.model import RunState
from tests.hangs.verdicts.simulate import (
    TORCH,
    TRAINER,
    WORKER,
    Page,
    Quiet,
    Simulation,
    Steps,
    Tree,
    fetching,
    first,
    openmp,
    process,
    thread,
)

Segments = tuple[Steps | Quiet, ...]
MAIN = "main (/home/u/train.py:40)"
FORWARD = f"_conv_forward ({TORCH}/nn/modules/conv.py:549)"
STEADY = Steps(seconds=5)


def trainer(main: ThreadSeen, *others: ThreadSeen, **fields: object) -> ProcessSeen:
    return process(TRAINER, main, *openmp(TRAINER), *others, **fields)


def blocked(wait: Wait, frame: str = MAIN) -> Tree:
    return lambda _: (trainer(thread(TRAINER, wait, frame)),)


def lines(now: float, *outer: str) -> tuple[str, ...]:
    """Give a stack whose innermost line changes several times a second."""
    return (f"f (/home/u/metric.py:{int(now * 7) % 40})", *outer)


def python_work(now: float) -> tuple[ProcessSeen, ...]:
    return (trainer(thread(TRAINER, Wait.NOTHING, *lines(now), cpu=now)),)


def compiler_child(now: float) -> tuple[ProcessSeen, ...]:
    clang = process(700, thread(700, Wait.NOTHING, cpu=now), python=False, name="clang")
    return trainer(thread(TRAINER, Wait.CHILD, FORWARD, waits_for=(700,))), clang


def files_grow(now: float) -> tuple[ProcessSeen, ...]:
    main = thread(TRAINER, Wait.LOCK, FORWARD)
    return (trainer(main, written_bytes=int(now * 1e6)),)


def in_process_compile(now: float) -> tuple[ProcessSeen, ...]:
    native = (f"llvm::pass{int(now * 3) % 50}::run", "amd_comgr_do_action", "hiprtcCompileProgram")
    return (trainer(thread(TRAINER, Wait.NOTHING, FORWARD, native=native, cpu=now)),)


def torch_compile(now: float) -> tuple[ProcessSeen, ...]:
    """Wait in a Python lock while a thread reads from a pool of children that compile."""
    reader = thread(
        103, Wait.TREE, f"_read ({TORCH}/_inductor/subproc_pool.py:9)", waits_for=(700,)
    )
    pool = process(700, thread(700, Wait.CHILD, "run (/x/w.py:1)", waits_for=(701,)))
    child = process(701, thread(701, Wait.NOTHING, *lines(now), cpu=now), parent=700)
    main = thread(TRAINER, Wait.LOCK, "wait (/usr/lib/python3.12/threading.py:359)", MAIN)
    return trainer(main, reader), pool, child


def native_op(now: float) -> tuple[ProcessSeen, ...]:
    native = ("mkl_lapack_sgesdd", "at::native::svd_kernel")
    return (trainer(thread(TRAINER, Wait.NOTHING, MAIN, native=native, cpu=now)),)


def simulator_child(now: float) -> tuple[ProcessSeen, ...]:
    child = process(700, thread(700, Wait.NOTHING, *lines(now), cpu=now))
    return trainer(thread(TRAINER, Wait.TREE, MAIN, waits_for=(700,))), child


def checkpoint(now: float) -> tuple[ProcessSeen, ...]:
    main = thread(TRAINER, Wait.DISK, f"write_record ({TORCH}/serialization.py:1)")
    return (trainer(main, written_bytes=int(now * 2e7)),)


def checkpoint_behind_a_lock(now: float) -> tuple[ProcessSeen, ...]:
    writer = thread(103, Wait.DISK, f"write_record ({TORCH}/serialization.py:1)")
    return (trainer(thread(TRAINER, Wait.LOCK, MAIN), writer, written_bytes=int(now * 1e4)),)


def worker_in(wait: Wait, frame: str = "read (/home/u/data.py:9)") -> Tree:
    return lambda _: (trainer(fetching()), process(WORKER, thread(WORKER, wait, frame)))


def slow_reads(now: float) -> tuple[ProcessSeen, ...]:
    worker = process(
        WORKER, thread(WORKER, Wait.DISK, "read (/home/u/data.py:9)"), read_bytes=int(now * 1e4)
    )
    return trainer(fetching()), worker


def rank_zero_validates(now: float) -> tuple[ProcessSeen, ...]:
    barrier = f"barrier ({TORCH}/distributed/distributed_c10d.py:4700)"
    zero = thread(500, Wait.NOTHING, *lines(now), cpu=now)
    one = thread(600, Wait.SLEEP, barrier, MAIN, native=("c10d::Work::wait",))
    return process(500, zero, *openmp(500)), process(600, one, *openmp(600))


def foreign(_: float) -> tuple[ProcessSeen, ...]:
    return (process(TRAINER, thread(TRAINER, Wait.LOCK), python=False, name="docker"),)


def prefetch_thread_in(wait: Wait) -> Tree:
    main = thread(TRAINER, Wait.LOCK, "get (/usr/lib/python3.12/queue.py:171)", MAIN)
    return lambda _: (trainer(main, thread(103, wait, "fetch (/home/u/data.py:9)")),)


def at_a_shared_lock(_: float) -> tuple[ProcessSeen, ...]:
    """Wait in multiprocessing's Event for a child that reads from the network."""
    child = process(700, thread(700, Wait.WORLD, "fetch (/home/u/data.py:9)"))
    frame = "wait (/usr/lib/python3.12/multiprocessing/synchronize.py:280)"
    return trainer(thread(TRAINER, Wait.LOCK, frame, MAIN)), child


def at_a_lock_of_a_busy_child(now: float) -> tuple[ProcessSeen, ...]:
    child = process(700, thread(700, Wait.NOTHING, MAIN, cpu=now))
    return trainer(thread(TRAINER, Wait.LOCK, MAIN)), child


def at_the_prompt(_: float) -> tuple[ProcessSeen, ...]:
    frames = (
        "cmdloop (/usr/lib/python3.12/cmd.py:1)",
        "trace_dispatch (/usr/lib/python3.12/bdb.py:1)",
    )
    return (trainer(thread(TRAINER, Wait.WORLD, *frames, MAIN)),)


def synchronises(now: float) -> tuple[ProcessSeen, ...]:
    native = ("hsa_signal_wait_scacquire", "hipDeviceSynchronize")
    return (trainer(thread(TRAINER, Wait.NOTHING, MAIN, native=native, cpu=now)),)


def timed_lock(now: float) -> tuple[ProcessSeen, ...]:
    left = Blocked(on="lock 0x5", left=20 - now % 20, pids=(TRAINER,))
    return (trainer(thread(TRAINER, Wait.LOCK, MAIN, blocked=left)),)


def growing() -> Segments:
    return tuple(Steps(seconds=0.02 * 1.018**i, step=0.02 * 1.018**i) for i in range(300))


LOOK_ALIKES: dict[str, Segments] = {
    "a first step of 90 s with a compiler child": (Quiet(seconds=90, tree=compiler_child), STEADY),
    "a first step of 90 s in which files grow": (Quiet(seconds=90, tree=files_grow), STEADY),
    "an in-process compile of 120 s": (Quiet(seconds=120, tree=in_process_compile), STEADY),
    "the same in mid-training": (STEADY, Quiet(seconds=120, tree=in_process_compile), STEADY),
    "torch.compile": (STEADY, Quiet(seconds=120, tree=torch_compile, phase="compile"), STEADY),
    "tuning that only prints": (Quiet(seconds=150, tree=native_op, counts_every=7), STEADY),
    "validation of 60 s": (STEADY, Quiet(seconds=60, tree=python_work, phase="evaluate"), STEADY),
    "a Python metric of 40 s": (STEADY, Quiet(seconds=40, tree=python_work), STEADY),
    "a native operation of 30 s": (STEADY, Quiet(seconds=30, tree=native_op), STEADY),
    "a native operation of 150 s": (STEADY, Quiet(seconds=150, tree=native_op), STEADY),
    "a burst of 200 steps, then 60 s": (
        Steps(seconds=1, step=0.005),
        Quiet(seconds=60, tree=simulator_child),
        STEADY,
    ),
    "a checkpoint to a throttled disk": (
        STEADY,
        Quiet(seconds=60, tree=checkpoint, phase="checkpoint"),
        STEADY,
    ),
    "the same by a thread": (STEADY, Quiet(seconds=60, tree=checkpoint_behind_a_lock), STEADY),
    "a data stall of 45 s on slow reads": (STEADY, Quiet(seconds=45, tree=slow_reads), STEADY),
    "a silent socket for 60 s": (STEADY, Quiet(seconds=60, tree=blocked(Wait.WORLD)), STEADY),
    "the same in a worker": (STEADY, Quiet(seconds=60, tree=worker_in(Wait.WORLD)), STEADY),
    "a worker's back-off of 60 s": (STEADY, Quiet(seconds=60, tree=worker_in(Wait.SLEEP)), STEADY),
    "a back-off of a thread": (
        STEADY,
        Quiet(seconds=60, tree=prefetch_thread_in(Wait.SLEEP)),
        STEADY,
    ),
    "a download by a thread": (
        STEADY,
        Quiet(seconds=60, tree=prefetch_thread_in(Wait.WORLD)),
        STEADY,
    ),
    "500 micro-steps a step": (
        STEADY,
        Quiet(seconds=60, tree=blocked(Wait.LOCK), beats_every=0.4),
        STEADY,
    ),
    "steps that a scaler skips": (
        STEADY,
        Quiet(seconds=60, tree=blocked(Wait.LOCK), beats_every=0.2),
        STEADY,
    ),
    "steps that grow to 4 s": growing(),
    "stdout into a reader that stops": (
        STEADY,
        Quiet(seconds=60, tree=blocked(Wait.WORLD)),
        STEADY,
    ),
    "^Z for 60 s, then fg": (STEADY, Quiet(seconds=60, tree=blocked(Wait.STOPPED)), STEADY),
    "^Z, then 4 s in a lock": (
        STEADY,
        Quiet(seconds=15, tree=blocked(Wait.STOPPED)),
        Quiet(seconds=4, tree=blocked(Wait.LOCK)),
        STEADY,
    ),
    "a debugger attached for an hour": (
        STEADY,
        Quiet(seconds=3600, tree=blocked(Wait.TRACED), tick=1),
        STEADY,
    ),
    "breakpoint() for an hour": (STEADY, Quiet(seconds=3600, tree=at_the_prompt, tick=1), STEADY),
    "the machine asleep for 60 s": (
        STEADY,
        Quiet(seconds=4.2, tree=blocked(Wait.LOCK), asleep=60),
        Quiet(seconds=4, tree=blocked(Wait.LOCK)),
        STEADY,
    ),
    "we and the tree stopped for 60 s": (
        STEADY,
        Quiet(seconds=4.2, tree=blocked(Wait.LOCK), away=60),
        Quiet(seconds=4, tree=blocked(Wait.LOCK)),
        STEADY,
    ),
    "time.sleep(60) between epochs": (STEADY, Quiet(seconds=60, tree=blocked(Wait.SLEEP)), STEADY),
    "a lock of multiprocessing": (STEADY, Quiet(seconds=60, tree=at_a_shared_lock), STEADY),
    "a lock that a busy child has": (
        STEADY,
        Quiet(seconds=60, tree=at_a_lock_of_a_busy_child),
        STEADY,
    ),
}
LOOK_ALIKES |= {
    "an evaluation of 5 hours that prints a counter": (
        STEADY,
        Quiet(seconds=5 * 3600, tree=python_work, counts_every=20, tick=1),
        STEADY,
    ),
    "a device wait of 280 s": (STEADY, Quiet(seconds=280, tree=synchronises), STEADY),
    "a lock that is given up after 20 s": (STEADY, Quiet(seconds=20, tree=timed_lock), STEADY),
}
WITHOUT_PAGES: dict[str, Segments] = {
    "no torch, and it prints": (Quiet(seconds=600, tree=native_op, counts_every=2, tick=1),),
    "no torch, and it computes": (Quiet(seconds=1700, tree=python_work, tick=1),),
    "a command whose work is not ours": (Quiet(seconds=40000, tree=foreign, tick=4),),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_is_never_hung(name: str) -> None:
    simulation = Simulation()

    simulation.run(*LOOK_ALIKES[name])

    assert RunState.HUNG not in {said.condition for said in simulation.said}
    assert simulation.said[-1].condition is RunState.HEALTHY


@pytest.mark.parametrize("name", WITHOUT_PAGES)
def test_without_pages_is_never_hung(name: str) -> None:
    simulation = Simulation([])

    simulation.run(*WITHOUT_PAGES[name])

    assert RunState.HUNG not in {said.condition for said in simulation.said}


def test_rank_0_may_validate_for_90_s_while_rank_1_waits_in_a_barrier() -> None:
    simulation = Simulation([Page(pid=500, rank=0, world=2), Page(pid=600, rank=1, world=2)])

    simulation.run(STEADY, Quiet(seconds=90, tree=rank_zero_validates), STEADY)

    assert RunState.HUNG not in {said.condition for said in simulation.said}


def test_what_cannot_be_seen_is_said() -> None:
    simulation = Simulation([])

    simulation.run(Quiet(seconds=60, tree=foreign))

    last = simulation.said[-1].verdict
    assert last.condition is RunState.SLOW
    assert "where rocsteady cannot see it" in last.why


def test_ranks_on_other_machines_are_waited_for() -> None:
    """Everything here is static in locks, but what is waited for is elsewhere."""
    reduce = f"all_reduce ({TORCH}/distributed/distributed_c10d.py:3007)"

    def tree(_: float) -> tuple[ProcessSeen, ...]:
        return (process(TRAINER, thread(TRAINER, Wait.LOCK, reduce, MAIN)),)

    simulation = Simulation([Page(rank=0, world=16)])
    simulation.run(STEADY, Quiet(seconds=1500, tree=tree, tick=1), STEADY)

    assert RunState.HUNG not in {said.condition for said in simulation.said}


class Launcher(Page):
    """A process that imported torch and never trains."""

    def stepped(self, at: float, seconds: float, times: int) -> None:
        """Make no step."""


def test_an_idle_launcher_with_a_page_of_its_own_does_not_hide_a_healthy_run() -> None:
    simulation = Simulation([Launcher(pid=50), Page(pid=TRAINER, rank=0, world=1)])

    simulation.run(STEADY)

    assert simulation.said[-1].condition is RunState.HEALTHY


def test_a_lock_that_a_killed_build_left_behind_is_named() -> None:
    frames = (
        f"wait ({TORCH}/utils/file_baton.py:49)",
        f"_jit_compile ({TORCH}/utils/cpp_extension.py:2119)",
        "main (/home/u/train.py:13)",
    )
    tree = process(TRAINER, thread(TRAINER, Wait.SLEEP, *frames))
    simulation = Simulation(None, Patience())
    simulation.run(Steps(seconds=6))
    simulation.run(Quiet(seconds=200, tree=lambda _: (tree,)))

    slow = first(simulation.said, RunState.SLOW)
    assert slow is not None
    assert "torch_extensions -name lock" in slow.verdict.why
