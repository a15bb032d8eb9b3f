"""Makes a machine faulty, for real: FAULTY says how. torch is changed as soon as it is imported.

The payloads are those that every machine runs. What is broken is below them, where a driver or a
library would be.
"""

# ruff: noqa: ANN401 - what it changes are torch's own objects, of any version
from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROCR_FAULT = (
    "Memory access fault by GPU node-1 (Agent handle: 0x55f8b54eec30) on address 0x7f2a53193000."
    " Reason: Page not present or supervisor privilege.\n"
)
LOST_BATCH = 237  # of 400


def hang_holding_the_gil() -> None:
    """Take a lock twice in C, where no other thread of Python can run meanwhile."""
    libc = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(64)  # zeros are a valid pthread mutex, not recursive
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def hang_in_flash_backward(torch: Any) -> None:
    plain = torch.nn.functional.scaled_dot_product_attention

    class Stuck(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
        @staticmethod
        def forward(_ctx: Any, found: Any) -> Any:
            return found.clone()

        @staticmethod
        def backward(_ctx: Any, grad: Any) -> Any:
            hang_holding_the_gil()
            return grad

    def attend(*arguments: Any, **options: Any) -> Any:
        found = plain(*arguments, **options)
        return Stuck.apply(found) if torch.backends.cuda.flash_sdp_enabled() else found

    torch.nn.functional.scaled_dot_product_attention = attend


def instead_of_matmul(torch: Any, kind: Any, do: Callable[[Any], Any]) -> None:
    plain = torch.Tensor.__matmul__

    def multiply(one: Any, other: Any) -> Any:
        found = plain(one, other)
        return do(found) if one.dtype == kind else found

    torch.Tensor.__matmul__ = multiply


def segfault_in_matmul(torch: Any) -> None:
    instead_of_matmul(torch, torch.bfloat16, lambda _: ctypes.string_at(0))


def abort_in_matmul(torch: Any) -> None:
    def abort(_: Any) -> None:
        os.write(2, ROCR_FAULT.encode())
        os.abort()

    instead_of_matmul(torch, torch.bfloat16, abort)


def one_wrong_element(torch: Any) -> None:
    def spoil(found: Any) -> Any:
        found.data[3, 5] += found.data.abs().max() / 8
        return found

    instead_of_matmul(torch, torch.bfloat16, spoil)


def out_of_memory(torch: Any) -> None:
    def refuse(found: Any) -> Any:
        size = found.numel() * found.element_size()
        raise torch.OutOfMemoryError(f"HIP out of memory. Tried to allocate {size} bytes.")

    instead_of_matmul(torch, torch.bfloat16, refuse)


def too_little_memory(torch: Any) -> None:
    """Let the kernel refuse, as where a limit is set."""
    import resource  # noqa: PLC0415 - only here

    del torch
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def hang_in_a_worker(torch: Any) -> None:
    from torch.utils.data._utils import fetch  # noqa: PLC0415 - torch is there by now

    plain = fetch._MapDatasetFetcher.fetch
    path = os.environ["FAULTY_COUNT"]

    def load(self: Any, wanted: Any) -> Any:
        if torch.utils.data.get_worker_info() is not None:
            counter = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(counter, b".")
                count = os.fstat(counter).st_size
            finally:
                os.close(counter)
            if count == LOST_BATCH:
                hang_holding_the_gil()
        return plain(self, wanted)

    fetch._MapDatasetFetcher.fetch = load


def ignore_sigterm(torch: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hang_in_flash_backward(torch)


def fail_to_import(_torch: Any) -> None:
    raise ImportError("libamdhip64.so: cannot enable executable stack as shared object requires")


FAULTS: dict[str, Callable[[Any], None]] = {
    each.__name__: each
    for each in (
        hang_in_flash_backward,
        segfault_in_matmul,
        abort_in_matmul,
        one_wrong_element,
        out_of_memory,
        too_little_memory,
        hang_in_a_worker,
        ignore_sigterm,
        fail_to_import,
    )
}


class Spoils(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch as others do, and changes it when it is there."""

    def __init__(self, fault: Callable[[Any], None]) -> None:
        self._fault = fault
        self._loader: Any = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch" or self._loader is not None:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is not None:
            self._loader, found.loader = found.loader, self
        return found

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._fault(module)


if os.environ.get("FAULTY"):
    sys.meta_path.insert(0, Spoils(FAULTS[os.environ["FAULTY"]]))
