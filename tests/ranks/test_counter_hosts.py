"""Two hosts that meet through counters, as more than 256 do: real torchruns, one fault each."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from host_faults import Job, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.turns(14),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]


def kill_rank(job: Job) -> None:
    """Kill a rank of the second host to arrive."""
    os.kill(job.pid(3), signal.SIGKILL)


def deadlock(job: Job) -> None:
    """Let it take a lock twice."""
    (job.shared / "fault-3").write_text("backward", encoding="utf-8")


def replace_host(job: Job) -> None:
    """End a host without the store, and start it again as a scheduler would."""
    job.kill(2)
    job.start(2)


@pytest.mark.parametrize("fault", [None, kill_rank, deadlock, replace_host])
def test_hosts_meet_through_counters(
    start: Callable[..., Job], fault: Callable[[Job], None] | None
) -> None:
    job = start(2, 150, counter=True)
    assert job.until(lambda: len(job.told("saved")) > 1), job.all_said()

    if fault is not None:
        fault(job)

    assert set(job.codes().values()) == {0}, job.all_said()
    assert job.generations() == (1 if fault is None else 2)
    assert len(job.told("done")) == 4
