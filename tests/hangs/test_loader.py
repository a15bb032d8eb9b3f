"""The hang that users meet most: a loader worker that never answers, with the real torch."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from rocsteady.hangs.looking.snapshot import take_snapshot
from rocsteady.hangs.values import Wait

if TYPE_CHECKING:
    from tests.hangs.conftest import Start

TORCH_PYTHON = os.environ.get("ROCSTEADY_TEST_TORCH_PYTHON", "")
SOON = timedelta(seconds=10)


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.skipif(not TORCH_PYTHON, reason="needs ROCSTEADY_TEST_TORCH_PYTHON")
def test_a_worker_blocked_on_a_semaphore_is_found_and_named(start: Start, victims: str) -> None:
    victim = start(TORCH_PYTHON, f"{victims}/evidence_loader.py")
    (worker,) = victim.waits_for
    time.sleep(1)

    seen = take_snapshot(victim.tree(), stacks=True, within=SOON)

    threads = {thread.tid: thread for process in seen.processes for thread in process.threads}
    fetching = threads[victim.pid]
    assert fetching.wait is Wait.TREE
    assert fetching.blocked is not None
    assert {*fetching.blocked.pids} - {victim.pid} == {worker}
    assert threads[worker].wait is Wait.LOCK
    frames = threads[worker].frames
    assert frames is not None
    assert frames[0].startswith("Stuck.__getitem__ (victims/evidence_loader.py:")
    loop = threads[victim.pid].frames
    assert loop is not None
    assert any("_try_get_data" in frame for frame in loop)
