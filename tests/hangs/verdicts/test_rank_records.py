"""What each rank does, from its heartbeat and one snapshot."""

from __future__ import annotations

import pytest

from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.hangs.judgment.blame import blame, rank_records
from rocsteady.hangs.values import Heartbeat, ProcessSeen, Snapshot, ThreadSeen, Wait
from rocsteady.model import RankRecord, WaitsFor

KNOWN = load_waits()
MAIN = "main (demo/train.py:40)"
C10D = "site-packages/torch/distributed/distributed_c10d.py:2709"
GRAPH = "_engine_run_backward (site-packages/torch/autograd/graph.py:769)"
LOADER = "_try_get_data (site-packages/torch/utils/data/dataloader.py:1100)"


def beat(rank: int | None, pid: int, **more: object) -> Heartbeat:
    told: dict[str, object] = {
        "world": 2, "thread": pid, "step": 12, "beats": 60, "phase": "backward", "since": 1.0,
        "last_step": 1.0, "ended": False, "raised": False, "total": None, "seconds_in": {},
        "longest_in": {}, "histogram": {}, **more,
    }  # fmt: skip
    return Heartbeat(rank=rank, pid=pid, **told)  # type: ignore[arg-type]


def process(
    pid: int, wait: Wait, *frames: str, native: tuple[str, ...] | None = None, state: str = "S"
) -> ProcessSeen:
    thread = ThreadSeen(
        tid=pid, name="python", state=state, cpu=1.0, wait=wait, frames=frames or None,
        native=native,
    )  # fmt: skip
    return ProcessSeen(
        pid=pid, parent=1, name="python", python=True, read_bytes=0, written_bytes=0, rss_bytes=0,
        threads=(thread,),
    )  # fmt: skip


def records(*processes: ProcessSeen, beats: tuple[Heartbeat, ...] = ()) -> tuple[RankRecord, ...]:
    seen = Snapshot(at=5.0, processes=processes, stacks=True)
    told = beats or tuple(beat(rank, each.pid) for rank, each in enumerate(processes))
    return rank_records(seen, told, KNOWN)


@pytest.mark.parametrize(
    ("seen", "waits"),
    [
        (process(7, Wait.SLEEP, f"all_reduce ({C10D})", MAIN), WaitsFor.RANKS),
        (process(7, Wait.LOCK, MAIN, native=("c10d::Work::wait(std::chrono)",)), WaitsFor.RANKS),
        (process(7, Wait.LOCK, GRAPH, MAIN), WaitsFor.MAYBE_RANKS),
        (process(7, Wait.LOCK, "backward (demo/train.py:60)", GRAPH, MAIN), WaitsFor.LOCK),
        (process(7, Wait.NOTHING, GRAPH, MAIN, state="R"), WaitsFor.NOTHING),
        (process(7, Wait.LOCK, "wait (threading.py:1)", LOADER, MAIN), WaitsFor.LOADER),
        (process(7, Wait.LOCK, "load (demo/data.py:8)", LOADER, MAIN), WaitsFor.LOCK),
        (process(7, Wait.DEVICE, MAIN), WaitsFor.GPU),
        (process(7, Wait.LOCK, MAIN, native=("hipStreamSynchronize",)), WaitsFor.GPU),
        (process(7, Wait.WORLD, "read (ssl.py:3)", MAIN), WaitsFor.WORLD),
        (process(7, Wait.STOPPED, MAIN, state="T"), WaitsFor.STOPPED),
        (process(7, Wait.LOCK), WaitsFor.UNKNOWN),
    ],
)
def test_what_a_rank_waits_for(seen: ProcessSeen, waits: WaitsFor) -> None:
    assert [each.waits_for for each in records(seen)] == [waits]


def test_a_rank_in_a_lock_is_blamed_and_its_line_named() -> None:
    stuck = process(8, Wait.LOCK, "deadlock (demo/train.py:60)", GRAPH, MAIN)

    found = blame(records(process(7, Wait.LOCK, GRAPH, MAIN), stuck))

    assert found.why == (
        "rank 1 is waiting for a lock at train.py:60 deadlock, and 1 rank waits for it"
    )


def test_a_rank_whose_script_is_done_is_not_forgotten() -> None:
    waiting = process(7, Wait.LOCK, f"barrier ({C10D})", MAIN)
    beats = (beat(0, 7), beat(1, 8, ended=True), beat(None, 9))

    told = records(waiting, beats=beats)

    assert [(each.rank, each.waits_for) for each in told] == [
        (0, WaitsFor.RANKS),
        (1, WaitsFor.ENDED),
    ]


def test_gpus_are_put_beside_what_was_seen() -> None:
    seen = Snapshot(at=5.0, processes=(process(7, Wait.DEVICE, MAIN),), stacks=True)
    (one,) = rank_records(
        seen,
        [beat(3, 7, base=100)],
        KNOWN,
        gpus={7: "0000:c3:00"},
    )

    assert one == RankRecord(
        rank=3,
        gpu="0000:c3:00",
        pid=7,
        step=112,
        phase="backward",
        place="train.py:40 main",
        waits_for=WaitsFor.GPU,
    )
