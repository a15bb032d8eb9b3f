"""Which exceptions are a lack of memory, in the words that allocators use."""

from __future__ import annotations

import errno
from collections.abc import Callable

import torch
from rocsteady_train.loop.micro_batches import is_out_of_memory

# Texts of alloc_cpu.cpp, CUDACachingAllocator.cpp and CUDAException.cpp, and from reports
LACKS = (
    torch.OutOfMemoryError(
        "HIP out of memory. Tried to allocate 124.00 MiB. GPU 0 has a total capacity of 19.94 GiB"
        " of which 554.47 MiB is free. Of the allocated memory 15.87 GiB is allocated by PyTorch,"
        " and 165.29 MiB is reserved by PyTorch but unallocated."
    ),
    RuntimeError(
        "CUDA out of memory. Tried to allocate 50.00 MiB (GPU 0; 14.73 GiB total capacity; 13.62"
        " GiB already allocated; 49.88 MiB free; 13.80 GiB reserved in total by PyTorch)"
    ),
    RuntimeError("HIP error: out of memory\nCompile with `TORCH_USE_HIP_DSA` to enable"),
    torch.AcceleratorError("HIP error: out of memory\nSearch for `hipErrorOutOfMemory' in"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("hipMalloc failed: hipErrorOutOfMemory"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory:"
        " you tried to allocate 4398046511104 bytes. Error code 12 (Cannot allocate memory)"
    ),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you"
        " tried to allocate 8589934592 bytes."
    ),
    RuntimeError("unable to mmap 8192 bytes from file </torch_1_2_3>: Cannot allocate memory (12)"),
    RuntimeError("std::bad_alloc"),
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
)
OTHERS = (
    RuntimeError(
        "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"
    ),  # in most reports not memory, and smaller parts do not help
    ValueError("the replay buffer is out of memory"),
    RuntimeError("the tape machine is out of memory cells"),
    RuntimeError("miopenStatusUnknownError"),
    RuntimeError("HIP error: an illegal memory access was encountered"),
    OSError(errno.ENOSPC, "No space left on device"),
    torch.distributed.DistBackendError(
        "NCCL error: unhandled cuda error. Last error: Cuda failure 'CUDA error: out of memory'"
    ),
    KeyError("out of memory"),
)


def case_lacks_of_memory() -> int:
    for error in LACKS:
        assert is_out_of_memory(error), error
    return len(LACKS)


def case_others() -> int:
    for error in OTHERS:
        assert not is_out_of_memory(error), error
    return len(OTHERS)


def case_real_ones_of_this_allocator() -> list[str]:
    seen = [raised(lambda: torch.empty(1 << 50)), raised(lambda: bytearray(1 << 60))]
    assert all(is_out_of_memory(error) for error in seen)
    return [f"{type(error).__name__}: {error}"[:200] for error in seen]


def raised(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one it is, is what is asked
        return error
    raise AssertionError("it fitted")
