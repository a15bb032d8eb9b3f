"""Which judgment of a hang is kept: the verdict's, or the one by the evidence."""

from __future__ import annotations

import pytest

from rocsteady.model import Blame, RankRecord, Sign
from rocsteady.run.attempt.hang_evidence import more_telling

ALIKE = Blame(sign=Sign.NONE, why="no rank stands out", compared=2)
LOCKED = Blame(sign=Sign.WAIT, why="rank 1", ranks=(RankRecord(rank=1),), number=1, compared=2)
BEHIND = Blame(sign=Sign.WAIT, why="rank 0", ranks=(RankRecord(rank=0),), number=1, compared=2)


@pytest.mark.parametrize(
    ("by_evidence", "before", "kept"),
    [
        (LOCKED, BEHIND, LOCKED),
        (LOCKED, None, LOCKED),
        (ALIKE, LOCKED, LOCKED),
        (None, LOCKED, LOCKED),
        (ALIKE, None, ALIKE),
        (ALIKE, ALIKE, ALIKE),
        (None, None, None),
    ],
)
def test_a_judgment_that_names_a_rank_is_not_replaced_by_one_that_names_none(
    by_evidence: Blame | None, before: Blame | None, kept: Blame | None
) -> None:
    assert more_telling(by_evidence, before) == kept
