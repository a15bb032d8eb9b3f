"""Puts a fault below torch's dispatcher, where a driver or a library would be: no recorder sees it.

ROCSTEADY_STAGED_FAULT is JSON: the operator, the type and the least size that it is for, what goes
wrong, after how many calls, and what cures it (variables, versions of torch).
"""

# ruff: noqa: ANN401 - what it changes are torch's own objects, of any version
from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

VARIABLE = "ROCSTEADY_STAGED_FAULT"
TORCH = "torch"
HIP = "HIP error: an illegal memory access was encountered"


def hang() -> None:
    """Wait in C for ever, and let nobody end it mildly."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    library = ctypes.CDLL(None)
    while True:
        library.pause()


def hang_holding_the_gil() -> None:
    library = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def abort() -> None:
    ctypes.CDLL(None).prctl(4, 0)  # no core
    ctypes.CDLL(None).abort()


def crash() -> None:
    ctypes.CDLL(None).prctl(4, 0)
    ctypes.string_at(8)


def hip_error() -> None:
    raise getattr(sys.modules[TORCH], "AcceleratorError", RuntimeError)(HIP)


INSTEAD: dict[str, Callable[[], None]] = {
    "hang": hang,
    "gil": hang_holding_the_gil,
    "abort": abort,
    "segv": crash,
    "hip": hip_error,
}


class Fault:
    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.calls = 0
        self.inside = False
        self.libraries: list[Any] = []  # what they register lasts as long as they do

    def is_cured(self, torch: Any) -> bool:
        version = torch.__version__.partition("+")[0]
        variables = self.order.get("cured_by", {}).items()
        return bool(version in self.order.get("cured_versions", ())) or any(
            os.environ.get(name) == value for name, value in variables
        )

    def install(self, torch: Any) -> None:
        if self.is_cured(torch):
            return
        operator, key = self.order["operator"], self.order.get("key", "CPU")
        kernel = torch.library.get_kernel(operator, key)
        namespace, _, name = operator.partition("::")
        library = torch.library.Library(namespace, "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.impl(name, self.around(torch, kernel), key, with_keyset=True)
        self.libraries.append(library)

    def around(self, torch: Any, kernel: Any) -> Any:
        def call(keys: Any, *args: Any, **kwargs: Any) -> Any:
            if self.inside or not self.is_meant(torch, args):
                return kernel.call_boxed(keys, *args, **kwargs)
            self.calls += 1
            due = self.calls > self.order.get("after", 0)
            if due and self.order["fault"] in INSTEAD:
                INSTEAD[self.order["fault"]]()
            self.inside = True
            try:
                result = kernel.call_boxed(keys, *args, **kwargs)
                return self.spoilt(torch, result) if due else result
            finally:
                self.inside = False

        return call

    def is_meant(self, torch: Any, args: Any) -> bool:
        found = [each for each in tensors(torch, args) if each.is_floating_point()]
        if not found:
            return False
        kind = str(found[0].dtype)[6:]
        least, most = self.order.get("least", 0), self.order.get("most", 1 << 62)
        size = max(each.numel() for each in found)
        return bool(kind == self.order.get("dtype", "float32") and least <= size <= most)

    def spoilt(self, torch: Any, result: Any) -> Any:
        for tensor in tensors(torch, [result]):
            if not tensor.is_floating_point() or not tensor.numel():
                continue
            flat, kind = tensor.detach(), self.order["fault"]
            if kind == "nan":
                flat[(0,) * flat.dim()] = float("nan")
            elif kind == "zeros":
                (flat[flat.shape[0] // 2 :] if flat.dim() else flat).zero_()
            elif kind == "share":
                flat.copy_((flat.double() * (1 + self.order.get("share", 0.01))).to(flat.dtype))
            break
        return result


def tensors(torch: Any, values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(torch, value)


class Finder(importlib.abc.MetaPathFinder):
    """Stages the fault as soon as torch is there."""

    def __init__(self, fault: Fault) -> None:
        self.fault, self.busy = fault, False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name != TORCH or self.busy:
            return None
        self.busy = True
        try:
            found = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if found is None or found.loader is None:
            return None
        execute = found.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            sys.meta_path.remove(self)
            self.fault.install(module)

        found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found


if os.environ.get(VARIABLE):
    sys.meta_path.insert(0, Finder(Fault(json.loads(os.environ[VARIABLE]))))
