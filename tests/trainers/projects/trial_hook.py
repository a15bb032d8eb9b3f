"""Have one data worker of a real trainer deadlock, once, as soon as there is a checkpoint.

Installed into the environment of a trainer by try_trainers.py. It does nothing unless TRAINER_TRIAL
is set, to a pattern of the checkpoints, the file that notes that it has happened, and where it is
to happen: worker, or backward.
"""

from __future__ import annotations

import glob
import importlib.abc
import importlib.util
import os
import sys
import threading
from typing import Any

MODULES = {"worker": "torch.utils.data._utils.fetch", "backward": "torch.autograd"}


class Finder(importlib.abc.MetaPathFinder):
    """Changes the module that fetches batches, or that goes backward, when it is imported."""

    def __init__(self, place: str) -> None:
        self.place = place

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != MODULES[self.place]:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                (in_worker if self.place == "worker" else in_backward)(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def in_worker(module: Any) -> None:
    for kind in (module._MapDatasetFetcher, module._IterableDatasetFetcher):
        fetch = kind.fetch

        def fetch_or_hang(self: Any, index: Any, fetch: Any = fetch) -> Any:
            from torch.utils.data import get_worker_info  # noqa: PLC0415

            if get_worker_info():
                hang_once()
            return fetch(self, index)

        kind.fetch = fetch_or_hang


def in_backward(module: Any) -> None:
    backward = module.backward

    def backward_or_hang(*args: Any, **more: Any) -> Any:
        hang_once()
        return backward(*args, **more)

    module.backward = backward_or_hang


def hang_once() -> None:
    """Wait for a lock that nobody has, if there are checkpoints and it has not happened yet."""
    pattern, marker, _ = os.environ["TRAINER_TRIAL"].split(os.pathsep)
    number = 2 if "*" in os.path.basename(pattern) else 1
    if os.path.exists(marker) or len(glob.glob(pattern)) < number:
        return
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:  # another rank does
        return
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


if os.environ.get("TRAINER_TRIAL"):
    sys.meta_path.insert(0, Finder(os.environ["TRAINER_TRIAL"].split(os.pathsep)[2]))
