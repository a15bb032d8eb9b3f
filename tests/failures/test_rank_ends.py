"""What launchers print of the rank that ended first."""

from __future__ import annotations

import pytest

from rocsteady.failures.rank_ends import told_end
from rocsteady.system.child_end import Exit

TORCHRUN = """
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-19_20:36:16
  host      : node
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 25816)
  error_file: <N/A>
"""
MPIRUN = """
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[48310,1],1]
  Exit code:    3
--------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("log", "ended"),
    [
        (TORCHRUN.format(code="-9"), Exit(signal=9, rank=1)),
        (TORCHRUN.format(code="3"), Exit(code=3, rank=1)),
        (MPIRUN, Exit(code=3, rank=1)),
        (
            "mpirun noticed that process rank 1 with PID 0 on node n exited on signal 9 (Killed).",
            Exit(signal=9, rank=1),
        ),
        (
            "[rank: 2] Child process with PID 77 terminated with code -9. Forcefully terminating",
            Exit(signal=9, rank=2),
        ),
        ("srun: error: node: task 3: Exited with exit code 3", Exit(code=3, rank=3)),
        ("srun: error: node: task 0: Killed", Exit(signal=9, rank=0)),
        ("rank 1 is done", None),
    ],
)
def test_the_rank_and_how_it_ended(log: str, ended: Exit | None) -> None:
    assert told_end(f"step 1\n{log}\nmore") == ended
