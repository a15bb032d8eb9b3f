"""What the notes' machines did, brought about in an unmodified script.

Found as a user's own sitecustomize is, through PYTHONPATH. STORY_FAULTS is a list in JSON; each
fault has a kind and the step of its attempt, or a time in seconds since 1970. It happens once: a
file in STORY_MARKS says that it has. A kind that begins with "every-" happens in each attempt, for
as long as the run is not kept off the GPU, which the CPU stands in for.
"""

import importlib.abc
import importlib.util
import json
import os
import sys
import threading
import time
from pathlib import Path

ERRORS = {
    "blas": "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "memory": (
        "HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 19.98 GiB"
        " of which 214.00 MiB is free. Of the allocated memory 9.31 GiB is allocated by PyTorch,"
        " and 9.87 GiB is reserved by PyTorch but unallocated."
    ),
}
MARKS = Path(os.environ.get("STORY_MARKS", "."))
STUCK = MARKS / "a-worker-hangs"  # written by the training process, taken by the first worker
EVERY = "every-"
A_TIME = 1e9  # from here on it is no step
ON_GPU = os.environ.get("HIP_VISIBLE_DEVICES") != "-1"
steps = 0
told = False  # a worker to hang, in this process


def wait_forever():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def due(*kinds):
    """Return the kind of the first fault that has not happened, if it is time for it."""
    for number, (kind, at) in enumerate(json.loads(os.environ.get("STORY_FAULTS", "[]"))):
        if kind.startswith(EVERY):
            if ON_GPU and kind.removeprefix(EVERY) in kinds and steps + 1 >= at:
                return kind.removeprefix(EVERY)
            continue
        mark = MARKS / f"{number}-{kind}"
        if mark.exists():
            continue
        if kind not in kinds or (steps + 1 if at < A_TIME else time.time()) < at:
            return None
        mark.touch()
        return kind
    return None


def count(*_):
    global steps, told  # noqa: PLW0603 - a counter and a flag
    if not told and due("loader"):
        told = True
        STUCK.touch()
    steps += 1


def before_backward(autograd):
    plain = autograd.backward

    def backward(*given, **more):
        if due("backward"):
            wait_forever()
        plain(*given, **more)

    autograd.backward = backward


def before_forward(module):
    def forward(*_):
        if kind := due(*ERRORS):
            raise RuntimeError(ERRORS[kind])

    module.register_module_forward_pre_hook(forward)


def before_fetch(fetchers):
    plain = fetchers._MapDatasetFetcher.fetch  # noqa: SLF001 - the same for years

    def fetch(self, indices):
        from torch.utils.data import get_worker_info  # noqa: PLC0415 - imported by now

        if get_worker_info() and STUCK.exists():
            STUCK.unlink()
            wait_forever()
        return plain(self, indices)

    fetchers._MapDatasetFetcher.fetch = fetch  # noqa: SLF001


PLACES = {
    "torch.optim.optimizer": lambda module: module.register_optimizer_step_post_hook(count),
    "torch.autograd": before_backward,
    "torch.nn.modules.module": before_forward,
    "torch.utils.data._utils.fetch": before_fetch,
}


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls what belongs to a place once its module is imported."""

    def find_spec(self, name, path, target=None):
        del path, target
        change = PLACES.pop(name, None)
        spec = importlib.util.find_spec(name) if change else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


if "STORY_FAULTS" in os.environ:
    sys.meta_path.insert(0, AfterImport())
