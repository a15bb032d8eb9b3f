"""Bring about the faults of a drill: by optimizer step, or at a call of a named operator.

Only imported where there are any. Each is brought about once in a drill: whoever can make its file
does it, be it one of many ranks, and the next attempt finds the file. No fault is in a loader's
worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from . import wire
from .heartbeat import page
from .heartbeat.heart import Heart
from .heartbeat.script_end import PASSED_OVER

InPlaceOf = Callable[[Any, Any], Any]  # makes a function of ours look like the original

STEP, BACKWARD, LOADER = "step", "backward", "loader"
OUT_OF_MEMORY = (
    "HIP out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 19.98 GiB of"
    " which 214.00 MiB is free. Of the allocated memory 18.91 GiB is allocated by PyTorch, and"
    " 311.00 MiB is reserved by PyTorch but unallocated."
)
OUT_OF_MEMORY_ELSEWHERE = "out of memory. Tried to allocate 1.50 GiB."
ILLEGAL_ACCESS = "HIP error: an illegal memory access was encountered"
PR_SET_DUMPABLE = 4
DEVICES = ("CPU", "CUDA")  # dispatch keys; HIP has CUDA's


class FaultInjector:
    def __init__(self, heart: Heart, in_place_of: InPlaceOf) -> None:
        self._heart = heart
        self._in_place_of = in_place_of
        self._left: dict[int, dict[str, Any]] = {}
        self._calls: dict[str, int] = {}  # of operators
        self._libraries: list[Any] = []  # what they register lasts as long as they do
        plan = json.loads(os.environ[wire.FAULTS])
        if plan["version"] != wire.FAULTS_VERSION:
            raise ValueError(f"faults: not of version {wire.FAULTS_VERSION}")
        self._before: int = plan["before"]  # steps that the checkpoint has
        self._folder: str = plan["folder"]
        for number, fault in enumerate(plan["faults"]):
            if not os.path.exists(self._mark(number)):
                self._left[number] = fault

    def apply(self, name: str, module: Any) -> None:
        places = {fault["place"] for fault in self._left.values()}
        if name == "torch":
            for operator in sorted(place for place in places if "::" in place):
                self._stand_in_for(operator, module.library)
        if name == "torch.optim.optimizer" and STEP in places:
            module.register_optimizer_step_pre_hook(self._before_step())
        if name == "torch.autograd" and BACKWARD in places:
            self._replace(module, "backward", self._around_backward)
        if name == "torch.utils.data.dataloader" and LOADER in places:
            for iterator in (
                module._SingleProcessDataLoaderIter,  # noqa: SLF001 - the same for years
                module._MultiProcessingDataLoaderIter,  # noqa: SLF001
            ):
                self._replace(iterator, "_next_data", self._around_next)

    def _replace(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, self._in_place_of(original, around(original)))

    def _before_step(self) -> Any:
        def step(_optimizer: object, _args: object, _kwargs: object) -> None:
            for kind in self._due(STEP):
                _DEEDS[kind]()

        step._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001
        return _passed_over(step)

    def _around_backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> Any:
            for kind in self._due(BACKWARD):
                given = args[0] if args else kwargs["tensors"]
                _spoil(kind, given[0] if isinstance(given, (tuple, list)) else given)
            return original(*args, **kwargs)

        return backward

    def _around_next(self, original: Any) -> Any:
        def _next_data(iterator: Any) -> Any:
            for kind in self._due(LOADER):
                _DEEDS[kind]()
            return original(iterator)

        return _next_data

    def _stand_in_for(self, operator: str, library: Any) -> None:
        """Take the place of an operator's kernels, which then do the work."""
        namespace, _, name = operator.partition("::")
        devices = []
        for device in DEVICES:
            with contextlib.suppress(Exception):  # an older torch, or no kernel for this device
                stand_in = self._around_kernel(operator, library.get_kernel(operator, device))
                registered = library.Library(namespace, "IMPL")
                with warnings.catch_warnings():  # that a kernel is replaced, which is meant
                    warnings.simplefilter("ignore")
                    registered.impl(name, stand_in, device, with_keyset=True)
                self._libraries.append(registered)
                devices.append(device)
        if not devices:
            page.note(f"no fault in {operator}: this torch has no kernel to stand in for", None)

    def _around_kernel(self, operator: str, kernel: Any) -> Any:
        def call(keys: Any, *args: Any, **kwargs: Any) -> Any:
            self._calls[operator] = self._calls.get(operator, 0) + 1
            kinds = self._due(operator)
            for kind in kinds:
                _DEEDS[kind]()
            result = kernel.call_boxed(keys, *args, **kwargs)
            return _not_a_number(result) if "nan" in kinds else result

        return _passed_over(call)

    def _due(self, place: str) -> list[str]:
        """Take what is to happen here and now, and what nobody else has taken."""
        count = self._calls[place] if "::" in place else self._step
        return [
            fault["kind"]
            for number, fault in list(self._left.items())
            if fault["place"] == place and count >= fault["at"] and self._take(number)
        ]

    @property
    def _step(self) -> int:
        return self._before + self._heart.steps + 1

    def _take(self, number: int) -> bool:
        if page.is_loader_worker():
            return False
        self._left.pop(number, None)
        try:
            mark = os.open(self._mark(number), os.O_WRONLY | page.EXCLUSIVE, 0o600)
        except FileExistsError:
            return False
        record = {"at": time.time(), "step": self._step, "run": os.environ.get(wire.RUN, "")}
        with os.fdopen(mark, "wb") as stream:
            stream.write(json.dumps(record).encode())
        return True

    def _mark(self, number: int) -> str:
        return os.path.join(self._folder, f"{number}{wire.FIRED_SUFFIX}")


def _passed_over(function: Any) -> Any:
    """Have an error in this function taken for one of whoever called torch."""
    function.__code__ = function.__code__.replace(co_filename=PASSED_OVER)
    return function


def _spoil(kind: str, loss: Any) -> None:
    """Have it go wrong where autograd begins, with the gradient of this loss."""
    if kind == "hang":
        loss.register_hook(_hang_with_gil)
        return
    loss.register_hook(_not_a_number)
    with contextlib.suppress(RuntimeError):  # a view that cannot be written to
        loss.data.fill_(float("nan"))


def _not_a_number(result: Any) -> Any:
    torch: Any = sys.modules["torch"]
    if isinstance(result, (tuple, list)):
        return type(result)(_not_a_number(part) for part in result)
    spoilt = isinstance(result, torch.Tensor) and result.is_floating_point()
    return torch.full_like(result, float("nan")) if spoilt else result


def _hang_with_gil(*_: object) -> None:
    """Wait for ever in the C library, as a broken extension does: no other thread gets to run."""
    if sys.platform == "win32":
        _hang()
    else:
        library = ctypes.PyDLL(None)  # keeps the GIL during a call
        mutex = ctypes.create_string_buffer(64)  # zeros are a mutex that is free
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)


def _hang() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _out_of_memory() -> None:
    torch: Any = sys.modules["torch"]
    kind = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError  # before 2.5
    raise kind(OUT_OF_MEMORY if torch.cuda.is_initialized() else OUT_OF_MEMORY_ELSEWHERE)


def _illegal_access() -> None:
    raise getattr(sys.modules["torch"], "AcceleratorError", RuntimeError)(ILLEGAL_ACCESS)


def _crash() -> None:
    _leave_no_core()
    _send("SIGSEGV")


def _abort() -> None:
    _leave_no_core()
    os.abort()


def _send(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name, signal.SIGTERM))
    time.sleep(60)  # another thread may be the one that it ends


def _leave_no_core() -> None:
    """Write no image of many GiB for a crash that was wanted."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)


def _nothing() -> None:
    """Let the kernel do its work first: its result is what is spoilt."""


_DEEDS: dict[str, Callable[[], None]] = {
    "hang": _hang,
    "oom": _passed_over(_out_of_memory),
    "fault": _passed_over(_illegal_access),
    "kill": lambda: _send("SIGKILL"),
    "segv": _crash,
    "abort": _abort,
    "nan": _nothing,
}
