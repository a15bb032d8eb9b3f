"""Real runs are of POSIX; Windows is unconfirmed."""

from __future__ import annotations

import os

if os.name == "nt":
    collect_ignore_glob = ["test_run.py", "test_stopping.py", "test_resuming.py", "test_disks.py"]
