"""What fails below a training job. Each is a real failure of a real process, made to order."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info

FRAGMENTED = (
    "HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 19.98 GiB of"
    " which 214.00 MiB is free. Of the allocated memory 9.31 GiB is allocated by PyTorch, and 9.87"
    " GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try"
    " setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
HANDLE = "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"
FAULT = (  # as ROCr prints it before it aborts
    "Memory access fault by GPU node-2 (Agent handle: 0x55d0c8a0) on address 0x7f1c00e00000."
    " Reason: Page not present or supervisor privilege.\n"
)
BACKWARD = "_scaled_dot_product_flash_attention_for_cpu_backward"

_name = os.environ.get("DRIVER", "")  # workers that are not forked know it so
_library = torch.library.Library("aten", "IMPL")
_calls = 0
_steps = 0
_kept: list[bytearray] = []


def install(name: str) -> None:
    global _name  # noqa: PLW0603 - one a process, before anything else
    _name = os.environ["DRIVER"] = name
    if name == "attention-backward":
        kernel = torch.library.get_kernel(f"aten::{BACKWARD}", "CPU")
        _library.impl(BACKWARD, _hanging(kernel), "CPU", with_keyset=True)
    if name == "blas-handle" and "HIPBLASLT_WORKSPACE_SIZE" in os.environ:
        raise RuntimeError(HANDLE)


def load(index: int) -> None:
    if _name == "worker-lock" and get_worker_info() is not None and index >= 100:
        _wait_for_ever()
    if _name == "hungry-workers" and get_worker_info() is not None and len(_kept) < 12:
        _kept.append(bytearray(b"x" * (8 << 20)))  # as a cache of what was loaded


def compiler(graph: Callable[..., object], inputs: object) -> Callable[..., object]:
    del inputs
    if _name == "compile-dies":
        raise RuntimeError("LLVM ERROR: Failed to translate TritonGPU to LLVM IR.")
    return graph


def scale(step: int) -> float:
    """Give what a batch is multiplied by: more than fits 16 bits with a short exponent."""
    return 1e6 if _name == "overflow" and step >= 30 else 1.0


def step(number: int) -> None:
    global _steps  # noqa: PLW0603 - a counter of this process
    _steps += 1
    if _name == "fragments" and _steps == 40:
        raise torch.OutOfMemoryError(FRAGMENTED)
    if _name == "no-caching" and "PYTORCH_NO_HIP_MEMORY_CACHING" in os.environ and _steps == 30:
        raise torch.OutOfMemoryError(FRAGMENTED)
    if _name == "peer-access" and os.environ["RANK"] == "1" and number == 30:
        os.write(sys.stderr.fileno(), FAULT.encode())
        os.abort()
    if _name == "always" and number == 50:
        os.abort()
    if _name == "gpu-dies" and number == 50 and os.environ.get("HIP_VISIBLE_DEVICES") != "-1":
        os.abort()
    if _name == "own-bug" and number == 15:
        raise KeyError("learning_rate")


def _hanging(kernel: Any) -> Callable[..., object]:  # noqa: ANN401 - of torch, and private
    def backward(keys: object, *arguments: object, **more: object) -> object:
        global _calls  # noqa: PLW0603 - a counter of this process
        _calls += 1
        if _calls >= 30:
            _wait_for_ever()
        return kernel.call_boxed(keys, *arguments, **more)

    return backward


def _wait_for_ever() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
