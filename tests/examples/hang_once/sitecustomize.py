"""A hang put into somebody else's script: optimizer step HANG_AT waits for ever, the first time.

It is found as a user's own sitecustomize is, through PYTHONPATH. HANG_MARK is a file that says it
has happened.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Sequence
from types import ModuleType


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Wraps the optimizers' module once it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name != "torch.optim.optimizer":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            module.register_optimizer_step_pre_hook(_count)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_steps = 0


def _count(*_: object) -> None:
    global _steps  # noqa: PLW0603 - a counter
    _steps += 1
    if _steps == int(os.environ["HANG_AT"]):
        try:
            os.close(os.open(os.environ["HANG_MARK"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


sys.meta_path.insert(0, _AfterTorch())
