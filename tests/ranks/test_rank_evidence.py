"""Which rank holds up the others, by the evidence of an incident."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.hangs.looking.collect import Collected
from rocsteady.hangs.values import Heartbeat, ProcessSeen, Snapshot, ThreadSeen, Wait
from rocsteady.model import Blame, RankRecord, Sign
from rocsteady.run.attempt.hang_evidence import blame_by_evidence, suspects_first

if sys.platform == "win32":
    pytest.skip("ranks are of POSIX", allow_module_level=True)

KNOWN = load_waits()
REDUCE = "all_reduce (site-packages/torch/distributed/distributed_c10d.py:2709)"


def seen(pid: int, wait: Wait, *frames: str) -> ProcessSeen:
    thread = ThreadSeen(tid=pid, name="python", state="S", cpu=1.0, wait=wait, frames=frames)
    return ProcessSeen(
        pid=pid, parent=1, name="python", python=True, read_bytes=0, written_bytes=0, rss_bytes=0,
        threads=(thread,),
    )  # fmt: skip


def beat(rank: int, pid: int) -> Heartbeat:
    return Heartbeat(
        rank=rank, pid=pid, world=2, thread=pid, step=12, beats=60, phase="backward", since=1.0,
        last_step=1.0, ended=False, raised=False, total=None, seconds_in={}, longest_in={},
        histogram={},
    )  # fmt: skip


def evidence(folder: Path, *processes: ProcessSeen) -> Collected:
    snapshot = Snapshot(at=1.0, processes=processes, stacks=True) if processes else None
    return Collected(folder=str(folder), missing={}, snapshot=snapshot)


def test_the_rank_is_named_and_all_records_are_kept(tmp_path: Path) -> None:
    collected = evidence(
        tmp_path,
        seen(7_000_001, Wait.SLEEP, REDUCE, "main (demo/train.py:40)"),
        seen(7_000_002, Wait.LOCK, "load (demo/data.py:8)", "main (demo/train.py:40)"),
    )
    beats = (beat(0, 7_000_001), beat(1, 7_000_002))

    found = blame_by_evidence(collected, beats, KNOWN)

    assert found is not None
    assert found.why == "rank 1 is waiting for a lock at data.py:8 load, and 1 rank waits for it"
    kept = json.loads((tmp_path / "ranks.json").read_text())
    assert [each["waits_for"] for each in kept["ranks"]] == ["the other ranks", "a lock"]
    assert msgspec.convert(kept["blame"], Blame) == found


def test_one_rank_or_no_evidence_blames_nobody(tmp_path: Path) -> None:
    one = evidence(tmp_path, seen(7_000_001, Wait.LOCK, "main (demo/train.py:40)"))

    assert blame_by_evidence(one, [beat(0, 7_000_001)], KNOWN) is None
    assert blame_by_evidence(evidence(tmp_path), [beat(0, 7_000_001)], KNOWN) is None


def test_evidence_of_suspects_is_taken_first() -> None:
    found = Blame(sign=Sign.WAIT, why="", ranks=(RankRecord(rank=2, pid=30),))

    assert suspects_first((10, 20, 30, 40), found) == (30, 10, 20, 40)
    assert suspects_first((10, 20), None) == (10, 20)
