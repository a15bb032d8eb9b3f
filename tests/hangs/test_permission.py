"""Without the right to trace, what remains is still seen, and what does not is said."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.hangs.looking.stacks import NOT_PERMITTED
from rocsteady.hangs.values import Snapshot, Wait

if TYPE_CHECKING:
    from tests.hangs.conftest import Start


def looked_at(pid: int, how: str, victims: str) -> Snapshot:
    command = [sys.executable, f"{victims}/evidence_looker.py", str(pid), how]
    told = subprocess.run(command, check=True, capture_output=True, timeout=30)
    return msgspec.json.decode(told.stdout, type=Snapshot)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_sees_states_and_no_stacks(start: Start, victims: str) -> None:
    victim = start("lock")
    seen = looked_at(victim.pid, "uid", victims)

    assert (seen.stacks, seen.why_no_stacks) == (False, NOT_PERMITTED)
    (process,) = seen.processes
    assert process.python
    assert (process.read_bytes, process.written_bytes) == (0, 0)
    assert process.rss_bytes > 0
    (thread,) = process.threads
    assert (thread.state, thread.wait, thread.frames) == ("S", Wait.UNKNOWN, None)


def test_where_seccomp_refuses_ptrace_only_native_frames_are_lost(
    start: Start, victims: str
) -> None:
    """py-spy then reads /proc/PID/mem, which needs no call that a container forbids."""
    victim = start("lock")
    seen = looked_at(victim.pid, "seccomp", victims)

    (thread,) = seen.processes[0].threads
    assert (thread.state, thread.wait, thread.native) == ("S", Wait.LOCK, None)
    assert thread.frames is not None
    assert thread.frames[0].startswith("lock (")
