"""Builds looks at process trees, as evidence/ would take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocsteady.hangs.values import Heartbeat, ProcessSeen, Snapshot, ThreadSeen, Wait

TORCH = "site-packages/torch"
LOADER = (
    "select (python3.12/selectors.py:416)",
    "wait (python3.12/multiprocessing/connection.py:936)",
    "get (python3.12/multiprocessing/queues.py:113)",
    f"_try_get_data ({TORCH}/utils/data/dataloader.py:1133)",
    f"__next__ ({TORCH}/utils/data/dataloader.py:633)",
    "train (project/train.py:44)",
)
BACKWARD = (
    f"_engine_run_backward ({TORCH}/autograd/graph.py:769)",
    f"backward ({TORCH}/autograd/__init__.py:266)",
    f"backward ({TORCH}/_tensor.py:626)",
    "train (project/train.py:52)",
)
BARRIER = (
    f"barrier ({TORCH}/distributed/distributed_c10d.py:4159)",
    f"wrapper ({TORCH}/distributed/c10d_logger.py:81)",
    "train (project/train.py:70)",
)
WORKER = (
    "__getitem__ (project/data.py:88)",
    f"fetch ({TORCH}/utils/data/_utils/fetch.py:52)",
    f"_worker_loop ({TORCH}/utils/data/_utils/worker.py:349)",
)
IDLE_WORKER = (
    "poll (python3.12/multiprocessing/connection.py:257)",
    "get (python3.12/multiprocessing/queues.py:113)",
    f"_worker_loop ({TORCH}/utils/data/_utils/worker.py:333)",
)


def thread(
    tid: int,
    frames: Sequence[str],
    *,
    native: Sequence[str] | None = None,
    name: str = "python",
    wait: Wait = Wait.LOCK,
) -> ThreadSeen:
    return ThreadSeen(
        tid=tid,
        name=name,
        state="S",
        cpu=1.0,
        wait=wait,
        frames=tuple(frames),
        native=None if native is None else tuple(native),
    )


def snapshot_of(processes: Mapping[int, Sequence[ThreadSeen]], at: float = 0.0) -> Snapshot:
    return Snapshot(
        at=at,
        stacks=True,
        processes=tuple(
            ProcessSeen(
                pid=pid,
                parent=1,
                name="python",
                python=True,
                read_bytes=0,
                written_bytes=0,
                rss_bytes=0,
                threads=tuple(threads),
            )
            for pid, threads in processes.items()
        ),
    )


def beat(pid: int, *, rank: int | None = None, phase: str = "compute") -> Heartbeat:
    return Heartbeat(
        pid=pid,
        rank=rank,
        world=None,
        thread=pid,
        step=7,
        beats=7,
        phase=phase,
        since=0.0,
        last_step=None,
        ended=False,
        raised=False,
        total=None,
        seconds_in={},
        longest_in={},
        histogram={},
    )
