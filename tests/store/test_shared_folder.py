"""Project and home in a folder that two hosts share: each has its own journal, and one report.

Hosts are namespaces with a name and a mount of their own, through FUSE.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NEEDED = ("bindfs", "unshare", "hostname")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"there is no {', '.join(MISSING)}"),
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may make namespaces"
    ),
]
ON_HOST = 'hostname "$1" && bindfs "$2" "$3" && cd "$3/project" && shift 3 && exec "$@"'
TRAIN = "import time\nfor step in range(5):\n    print('step', step, flush=True); time.sleep(0.5)\n"


def test_hosts_that_share_project_and_home_have_a_journal_each(tmp_path: Path) -> None:
    disk, shared = tmp_path / "disk", tmp_path / "shared"
    shared.mkdir()
    for name in ("project", "home"):
        (disk / name).mkdir(parents=True)
    (disk / "project" / "train.py").write_text(TRAIN)
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
        "HOME": str(shared / "home"),
    }

    def on_host(name: str, *words: str) -> subprocess.Popen[str]:
        own = ("unshare", "--uts", "--mount", "sh", "-c", ON_HOST, "sh", name, disk, shared)
        return subprocess.Popen(
            [*own, sys.executable, "-m", "rocsteady", *words],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    run = ("run", "--yes", "--name", "job", "--", sys.executable, "train.py")
    runs = [on_host(name, *run) for name in ("node1", "node2")]
    said = [each.communicate(timeout=120) for each in runs]

    assert [each.returncode for each in runs] == [0, 0], said
    databases = sorted(path for path in disk.rglob("*.db*"))
    assert {path.parent.name for path in databases} == {"node1", "node2"}, databases
    assert [path.name for path in databases if path.name.endswith(("-wal", "-shm"))] == []
