"""Is an exception a lack of memory? By its type, then by its text."""

from __future__ import annotations

import gc
import traceback

import torch

TEXTS = (  # of RuntimeError, as allocators say it
    "out of memory",  # HIP, CUDA
    "hipErrorOutOfMemory",
    "can't allocate memory",  # the CPU's allocator
    "not enough memory",  # the same, on Windows
    "Cannot allocate memory",  # mmap, and the system itself
    "std::bad_alloc",
)


def is_lack_of_memory(error: BaseException) -> bool:
    """Tell whether memory ran out, on the device or on the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
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
