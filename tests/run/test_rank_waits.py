"""What ranks wait for goes from who watches a run to who looks at it, while no step is made."""

from __future__ import annotations

from pathlib import Path

from rocsteady.hangs.judgment.blame import blame
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.model import RankRecord, RunState, WaitsFor
from rocsteady.run.attempt.rank_waits import RankWaits, RankWaitsFile, read_waits

RANKS = (
    RankRecord(rank=0, place="train.py:9 validate", waits_for=WaitsFor.NOTHING),
    RankRecord(rank=1, place="train.py:12 main", waits_for=WaitsFor.RANKS),
)
HEALTHY = Verdict(condition=RunState.HEALTHY, why="", quiet=0.1)


def test_it_is_there_while_ranks_wait_and_gone_when_they_go_on(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    file, found = RankWaitsFile(pages), blame(RANKS)

    file.update(Verdict(condition=RunState.SLOW, why="", quiet=40.0, ranks=RANKS, blame=found))

    assert read_waits(pages) == RankWaits(ranks=RANKS, why=found.why)
    file.update(HEALTHY)
    assert read_waits(pages) == RankWaits()


def test_what_is_missing_or_damaged_tells_nothing(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    RankWaitsFile(pages).update(HEALTHY)

    assert [*tmp_path.iterdir()] == []
    assert read_waits(pages) == read_waits(None) == RankWaits()
    (tmp_path / "ranks.json").write_text("{")
    assert read_waits(pages) == RankWaits()
