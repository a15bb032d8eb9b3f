"""What a payload is given: how often to try, on which device; and where it tells what it saw."""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

VERSION = 1
BEAT = 8  # bytes: the number of tries that are done
BEAT_FILE, RESULT_FILE, OUTPUT_FILE = "beat", "result.json", "output"
OK, WRONG, RAISED, NO_MEMORY, NOT_RUN = (
    "ok",
    "wrong numbers",
    "exception",
    "out of memory",
    "not run",
)
TEXTS = ("out of memory", "can't allocate memory", "Cannot allocate memory", "std::bad_alloc")


class NotHere(Exception):  # noqa: N818 - not an error: there is nothing to try here
    """The question cannot be asked here; the text says why."""


class WrongNumbers(Exception):  # noqa: N818 - a result, not an error of ours
    """What was computed is not what it should be."""


class Experiment:
    def __init__(self, request: dict[str, Any]) -> None:
        self.arguments: dict[str, Any] = request.get("arguments", {})
        self.wanted: int = request["tries"]  # at most
        self.seconds: float = request["seconds"]  # at most
        self.folder: str = request["folder"]
        self.done = 0
        self.worst = 0.0  # the largest error, in bounds
        self.figures: dict[str, float] = {}
        self.facts: dict[str, str] = {}
        self.began = time.monotonic()
        self._torch: Any = None
        descriptor = os.open(os.path.join(self.folder, BEAT_FILE), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, BEAT)
            self._beat = memoryview(mmap.mmap(descriptor, BEAT)).cast("Q")
        finally:
            os.close(descriptor)

    @property
    def torch(self) -> Any:
        """torch, which is imported here if it was not before."""
        if self._torch is None:
            import torch  # noqa: PLC0415 - what is tried may be importing it

            torch.set_num_threads(1)  # the work is small: threads of the CPU would wait, not help
            self._torch = torch
        return self._torch

    @property
    def device(self) -> str:
        return "cuda" if self.torch.cuda.is_available() else "cpu"

    def tries(self) -> Iterator[int]:
        """Yield until there were enough, or until the time is over; at least once."""
        self.began = time.monotonic()
        while True:
            yield self.done
            self.wait()
            self.done += 1
            self._beat[0] = self.done
            if self.done >= self.wanted or time.monotonic() - self.began >= self.seconds:
                return

    def wait(self) -> None:
        """Wait until the device has done what it was given."""
        torch = sys.modules.get("torch")
        if torch is None:
            return
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def compare(self, found: Any, reference: Any, bound: float, what: str = "result") -> None:
        """Compare with a float64 reference; ``bound`` is relative to its largest value."""
        torch = self.torch
        reference = reference.detach().to("cpu", torch.float64)
        found = found.detach().to("cpu", torch.float64)
        if not bool(torch.isfinite(found).all()) and bool(torch.isfinite(reference).all()):
            raise WrongNumbers(f"{what}: not finite")
        largest = float(reference.abs().max()) or 1.0
        error = float((found - reference).abs().max()) / (bound * largest)
        self.worst = max(self.worst, error)
        if error > 1:
            raise WrongNumbers(f"{what}: the error is {error:.3g} times its bound")


def is_lack(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in TEXTS)


def carry_out(payload: Callable[[Experiment], None], request: dict[str, Any]) -> None:
    """Run a payload, and leave what came of it as a file, whole or not at all."""
    trial = Experiment(request)
    outcome, why, raised = OK, "", ""
    try:
        payload(trial)
        trial.wait()
    except NotHere as reason:
        outcome, why = NOT_RUN, str(reason)
    except WrongNumbers as wrong:
        outcome, why = WRONG, str(wrong)
    except BaseException as error:  # this is what was to be found out
        text = f"{type(error).__name__}: {error}"
        outcome, why = (NO_MEMORY if is_lack(error) else RAISED), text[:2000]
        raised = traceback.format_exc()[-8000:]
    seconds = time.monotonic() - trial.began
    result = {
        "version": VERSION,
        "traceback": raised,
        "observation": {
            "probe": request["probe"],
            "outcome": outcome,
            "why": why,
            "tries": trial.done,
            "seconds": seconds,
            "worst": trial.worst,
            "figures": trial.figures,
            "details": trial.facts,
        },
    }
    path = os.path.join(trial.folder, RESULT_FILE)
    with open(path + ".part", "w", encoding="utf-8") as stream:
        json.dump(result, stream)
    os.replace(path + ".part", path)


def run_one(request: dict[str, Any]) -> None:
    """Run the payload of a request, "module:function"; modules are those beside this one."""
    name = request["payload"]
    module, _, function = name.partition(":")
    if not (module.isidentifier() and function.isidentifier()):
        raise ValueError(name)
    package = __name__.rpartition(".")[0]
    __import__(f"{package}.{module}")
    carry_out(getattr(sys.modules[f"{package}.{module}"], function), request)


def main(arguments: list[str]) -> None:
    run_one(json.loads(arguments[0]))
