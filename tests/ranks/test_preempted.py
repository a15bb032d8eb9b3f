"""An exported batch file of two hosts under a real Slurm, which takes them for another job."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("Slurm is of POSIX", allow_module_level=True)

from host_faults import network, why_not
from rank_scripts import SCRIPTS
from slurm_cluster import cluster, missing, names

from rocsteady.plan.exports.export import Export
from rocsteady.plan.exports.targets import TARGETS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason="Slurm is not installed"),
    pytest.mark.skipif(bool(shutil.which("ip") and why_not()), reason="no network namespaces"),
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd starts jobs only as root"),
]
TORCHRUN = ("torchrun", "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "5", "train.py")
WITHIN = 300.0  # seconds to the first checkpoint


def test_a_job_of_two_hosts_that_is_preempted_is_requeued_and_resumes(
    tmp_path: Path, ranks_python: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    script = SCRIPTS["train.py"].strip("\n").replace("time.sleep(0.05)", "time.sleep(0.3)")
    (project / "train.py").write_text(f"{script}\n")
    export = Export(
        name="t", command=TORCHRUN, written="2026-11-20", gfx="gfx942", torch="2.8.0", rocm="6.4"
    )
    (project / "job.sbatch").write_text(next(iter(TARGETS["slurm"](export).values())))
    (project / "urgent.sbatch").write_text("#!/bin/sh\nsleep 1\n")
    (tmp_path / "slurm").mkdir()

    with network(2) as net, names(net), cluster(tmp_path / "slurm", net) as slurm:
        torchrun = tmp_path / "slurm" / "bin" / "torchrun"
        torchrun.write_text(f'#!/bin/sh\nexec {ranks_python} -m torch.distributed.run "$@"\n')
        torchrun.chmod(0o755)
        slurm.environment |= {
            "PATH": f"{Path(ranks_python).parent}:{slurm.environment['PATH']}",
            "ROCSTEADY_COMMAND": f"{sys.executable} -m rocsteady",
            "GLOO_SOCKET_IFNAME": "eth0",
            "HOME": str(tmp_path),
            "FAULT": "none",
            "BAD": "1",
        }
        number = slurm.submit(project / "job.sbatch")
        log, deadline = project / f"t-{number}.log", time.monotonic() + WITHIN
        while not (project / "ckpt.pt").exists():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        urgent = ("--partition=urgent", "--nodes=2", "--exclusive", "--output=urgent.log")
        slurm.submit(project / "urgent.sbatch", *urgent)
        job = slurm.until(number, "COMPLETED", "FAILED", "CANCELLED", restarts=1)

    said = log.read_text()
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), said
    assert "rocsteady: preempted; the run ended with 1 and can resume" in said
    begins = re.findall(r"(?m)^(\d): RANK \1 of 2 begins at (\d+)$", said)
    assert sorted(begins[:2]) == [("0", "0"), ("1", "0")], said
    assert sorted(begins[2:]) in [[("0", step), ("1", step)] for step in ("20", "40", "60")], said
