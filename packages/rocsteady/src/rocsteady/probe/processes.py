"""The processes that payloads run in: each in an interpreter of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import timedelta
from importlib import resources
from pathlib import Path

from rocsteady.system.child import Start, start_child
from rocsteady.system.child_end import DETACHED, Exit, Stopping

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


class PayloadProcess:
    def __init__(
        self,
        python: str,
        site: Path,
        request: dict[str, object],
        environment: Mapping[str, str],
        run_id: str,
    ) -> None:
        folder = Path(str(request["folder"]))
        self._child = start_child(
            Start(
                command=[python, "-c", START, str(site), json.dumps(request)],
                environment={**environment, "ROCSTEADY_RUN": run_id},
                folder=folder,
                run_id=run_id,
                log=folder / "output",
                terminal=DETACHED,
            )
        )
        self.pid = self._child.pid

    def ended(self, within: float) -> Exit | None:
        return self._child.wait(within)

    def tree(self) -> tuple[int, ...]:
        return self._child.tree() or (self.pid,)

    def kill(self) -> bool:
        return not self._child.stop(AT_ONCE, first=None).unkillable

    def close(self) -> None:
        self._child.close()


def tidy(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
