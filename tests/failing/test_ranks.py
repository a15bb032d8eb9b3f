"""Two ranks of which one dies wherever there are two: the run goes on with one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Failing

pytestmark = pytest.mark.slow

RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--log-dir=ranks")
HERE = Path(__file__).parent
PAIR = HERE.parent / "machines" / "rx7900xt-pair.json"  # this machine has no GPU


def test_one_rank_goes_on_where_two_fail(failing: Failing) -> None:
    failing.project.program = (sys.executable, str(HERE / "elsewhere.py"), str(PAIR))
    failing.launcher += RANKS

    victims = str(HERE.parent / "victims")
    options = ("--also", "single-gpu")  # the global batch shrinks with it
    ended = failing.run("peer-access", "--workers", "0", options=options, PYTHONPATH=victims)

    assert ended.code == 0, ended.err
    assert "DONE" in ended.out
    assert failing.failures == ["memory-access-fault"] * 2
    assert failing.remedies == ["retry", "single-gpu", "end"]
    assert failing.last_strategy() == {"gpus": [0]}
    assert ended.lines("resumed")
