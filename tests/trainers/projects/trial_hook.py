"""Have one data worker of a real trainer deadlock, once, as soon as there is a checkpoint.

Installed into the environment of a trainer by try_trainers.py. It does nothing unless TRAINER_TRIAL
is set, to a pattern of the checkpoints and the file that notes that it has happened.
"""

from __future__ import annotations

import glob
import importlib.abc
import importlib.util
import os
import sys
import threading
from typing import Any

FETCH = "torch.utils.data._utils.fetch"


class Finder(importlib.abc.MetaPathFinder):
    """Changes the module that fetches batches, when it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != FETCH:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def change(module: Any) -> None:
    pattern, marker = os.environ["TRAINER_TRIAL"].split(os.pathsep)
    for kind in (module._MapDatasetFetcher, module._IterableDatasetFetcher):
        fetch = kind.fetch

        def deadlock(self: Any, index: Any, fetch: Any = fetch) -> Any:
            from torch.utils.data import get_worker_info  # noqa: PLC0415

            if get_worker_info() and not os.path.exists(marker):
                number = 2 if "*" in os.path.basename(pattern) else 1
                if len(glob.glob(pattern)) >= number:
                    open(marker, "w").close()
                    lock = threading.Lock()
                    lock.acquire()
                    lock.acquire()
            return fetch(self, index)

        kind.fetch = deadlock


if os.environ.get("TRAINER_TRIAL"):
    sys.meta_path.insert(0, Finder())
