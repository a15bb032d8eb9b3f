"""What cannot be killed is a result, and found out in time."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

from rocsteady.system.child_end import Exit, How, Stopping, StopResult, end_child
from rocsteady.system.keeper import Family, ProcessSnapshot
from rocsteady.system.launch import make_cgroup

NOBODY = 2**22 + 1  # above every pid that Linux gives
QUICK = timedelta(seconds=0.1)


class Stuck(Family):
    """A family with a process in it that no signal ends, as one stuck in the kernel."""

    def __init__(self) -> None:
        super().__init__(keeper=NOBODY, run_id="stuck")

    def members(self) -> dict[int, ProcessSnapshot]:
        return {NOBODY: ProcessSnapshot(state="D", parent=1, start=1)}


def test_what_cannot_be_killed_is_named_in_time() -> None:
    def wait(_seconds: float) -> Exit | None:
        return None

    stopping = Stopping(terminate_wait=QUICK, kill_wait=QUICK)
    ended = end_child(Stuck(), wait, stopping, signal.SIGTERM)

    assert ended == StopResult(
        exit=None, unkillable=(NOBODY,), seconds=ended.seconds, how=How.UNKILLABLE
    )
    assert ended.seconds < 2


def test_where_there_is_no_cgroup_v2_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/x\n")
    (tmp_path / "mountinfo").write_text(
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw\n"
    )

    assert make_cgroup("run", proc=tmp_path) is None


def test_a_cgroup_that_is_not_ours_to_use_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "mountinfo").write_text(f"41 31 0:38 / {tmp_path}/root rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "root").mkdir()

    assert make_cgroup("run", proc=tmp_path) is None
    assert list((tmp_path / "root").iterdir()) == []
