"""The processes that payloads and reproductions run in: each in an interpreter of its own."""

from __future__ import annotations

from datetime import timedelta
from importlib import resources
from pathlib import Path

from rocsteady.system.child import Child
from rocsteady.system.child_end import Stopping

PACKAGE = "_rocsteady_inside"
START = (
    "import sys; sys.path[:] = [sys.argv[1], *filter(None, sys.path)];"
    f" from {PACKAGE}.payloads.experiment import main; main(sys.argv[2:])"
)
AT_ONCE = Stopping(terminate_wait=timedelta(0), kill_wait=timedelta(seconds=3))


def lay_out(folder: Path) -> Path:
    """Copy the payloads into a folder, and return what to put on the path."""
    site = folder / "site"
    inside = resources.files("rocsteady_train.inside")
    for name in ("", "payloads"):
        target = site / PACKAGE / name
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for source in (inside / name if name else inside).iterdir():
            if source.name.endswith(".py") and source.name != "sitecustomize.py":
                (target / source.name).write_bytes(source.read_bytes())
    return site


def kill_isolated(child: Child) -> bool:
    """End it and all that it started; False: that is not possible."""
    return not child.stop(AT_ONCE, first=None).unkillable
