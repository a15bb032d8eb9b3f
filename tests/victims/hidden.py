"""Runs a victim as a process that nobody may trace, nor look into below /proc."""

from __future__ import annotations

import ctypes
import runpy
import sys
from pathlib import Path

PR_SET_DUMPABLE = 4

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    script = Path(sys.argv[1]).resolve()
    sys.path[0] = str(script.parent)
    runpy.run_path(str(script), run_name="__main__")
