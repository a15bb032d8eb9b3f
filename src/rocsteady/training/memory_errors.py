"""Is an exception a lack of memory? By its type, then by its text."""

from __future__ import annotations

import errno
import gc
import traceback

import torch

TEXTS = (  # of RuntimeError, as allocators say it
    "HIP out of memory",
    "CUDA out of memory",
    "XPU out of memory",
    "MPS backend out of memory",
    "HIP error: out of memory",  # of a call, not of torch's allocator
    "CUDA error: out of memory",
    "hipErrorOutOfMemory",
    "hipErrorMemoryAllocation",
    "cudaErrorMemoryAllocation",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",  # the same, on Windows
    "Cannot allocate memory",  # mmap, and the system itself
    "std::bad_alloc",
)
COMMIT_LIMIT = 1455  # Windows: the paging file is too small


def is_lack_of_memory(error: BaseException) -> bool:
    """Tell whether memory ran out, on the device or on the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM or getattr(error, "winerror", None) == COMMIT_LIMIT
    if any(kind.__name__ == "DistError" for kind in type(error).__mro__):  # of a collective
        return False
    return isinstance(error, RuntimeError) and any(text in str(error) for text in TEXTS)


def release(error: BaseException) -> None:
    """Let go of what a failed computation still holds: its frames, and the allocator's blocks."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    gc.collect()
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()
