"""A training script with something wrong below it: python faulty.py FAULT SCRIPT ...

The CPU stands in for the GPU: a fault acts as long as the run is not kept off the GPU, and what is
kept off it is slower. Real failures of a real process, as in tests/failing/drivers.py; which
variable was to blame in note B is not known, here it is the allocator's.
"""

import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

HANDLE = "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"
FRAGMENTED = (
    "HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 19.98 GiB of"
    " which 214.00 MiB is free. Of the allocated memory 9.31 GiB is allocated by PyTorch, and 9.87"
    " GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try"
    " setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
ON_GPU = os.environ.get("HIP_VISIBLE_DEVICES") != "-1"
LARGE, SECONDS = 256, 0.2  # an embedding, and what its backward pass takes without a GPU
SLOWER = 5  # times, without a GPU
# A name in brackets: what looks at stacks must not take the wait for the script's own Python.
wait = eval(compile("lambda seconds: sleep(seconds)", "<driver>", "eval"), {"sleep": time.sleep})  # noqa: S307


def backward_hangs() -> None:
    """Never come back from a backward pass (note A); without a GPU wait by the size of the model.

    The seconds are waited and not computed, so that forecasts depend less on this machine.
    """
    plain: Callable[..., None] = torch.autograd.backward
    each = SECONDS * (int(sys.argv[sys.argv.index("--embedding") + 1]) / LARGE) ** 2

    def backward(*given: Any, **more: Any) -> None:  # noqa: ANN401 - as torch has it
        if ON_GPU:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        wait(each)
        plain(*given, **more)

    torch.autograd.backward = backward


def no_handle() -> None:
    """Fail at the first layer as long as a variable is set (note B)."""
    slower_without_gpu()

    def forward(module: object, given: object) -> None:
        del module, given
        if ON_GPU and "expandable_segments" in os.environ.get("PYTORCH_HIP_ALLOC_CONF", ""):
            raise RuntimeError(HANDLE)

    register_module_forward_pre_hook(forward)


def fragments() -> None:
    """Run out of memory: soon with the cache turned off, later with it (note D)."""
    slower_without_gpu()
    after = 40 if "PYTORCH_NO_HIP_MEMORY_CACHING" in os.environ else 100_000
    made = 0

    def step(*_: object) -> None:
        nonlocal made
        made += 1
        if ON_GPU and made == after:
            raise torch.OutOfMemoryError(FRAGMENTED)

    register_optimizer_step_post_hook(step)


def slower_without_gpu() -> None:
    """Wait after each step, if the run is kept off the GPU."""
    last = time.perf_counter()

    def step(*_: object) -> None:
        nonlocal last
        if not ON_GPU:
            wait((SLOWER - 1) * min(time.perf_counter() - last, 1.0))
        last = time.perf_counter()

    register_optimizer_step_post_hook(step)


def busy_gpu() -> None:
    """Wait in each step for what a GPU would compute; loaders load ahead meanwhile (note C)."""
    register_optimizer_step_post_hook(lambda *_: wait(0.1))
    slower_without_gpu()


FAULTS = {
    "busy-gpu": busy_gpu,
    "backward-hangs": backward_hangs,
    "no-handle": no_handle,
    "fragments": fragments,
    "none": slower_without_gpu,
}

if __name__ == "__main__":
    name, *sys.argv = sys.argv[1:]
    FAULTS[name]()
    sys.path[0] = str(Path.cwd())
    runpy.run_path(sys.argv[0], run_name="__main__")
