"""What a training rests on: torch, a device, copies, the DataLoader."""

from __future__ import annotations

import time
from typing import Any

from .experiment import Experiment, NotHere, WrongNumbers


def import_torch(trial: Experiment) -> None:
    for _ in trial.tries():
        began = time.monotonic()
        torch = trial.torch
        trial.figures["seconds"] = time.monotonic() - began
        trial.facts["version"] = torch.__version__


def device_visible(trial: Experiment) -> None:
    """Count the GPUs that torch sees, and make a number on each."""
    torch = trial.torch
    for _ in trial.tries():
        if not torch.cuda.is_available():
            raise NotHere("no GPU")
        for index in range(torch.cuda.device_count()):
            one = torch.ones((), device=f"cuda:{index}") + 1
            trial.compare(one, torch.tensor(2.0), 1e-6)
        trial.figures["gpus"] = torch.cuda.device_count()
        trial.facts["gpu"] = torch.cuda.get_device_name(0)


BATCH, ROW = 8, 256
EPOCH = 100  # batches; workers that are forked are started anew for each, as in real trainings
FOREVER = 1 << 40


class Numbers:
    """Rows that tell by themselves which they are."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        import torch  # noqa: PLC0415 - in a worker too

        row = torch.arange(ROW, dtype=torch.float32)
        return row + index % EPOCH


def loader(trial: Experiment) -> None:
    """Load batches, and compute with them on the device."""
    torch, arguments = trial.torch, trial.arguments
    workers, pinned, method = arguments["workers"], arguments["pinned"], arguments["method"]
    if pinned and trial.device == "cpu":
        raise NotHere("no GPU")
    if method and method not in torch.multiprocessing.get_all_start_methods():
        raise NotHere(f"this system does not have {method}")
    # The GPU is in use when workers are started, as it is in a training.
    weight = torch.ones(ROW, 4, device=trial.device)
    trial.wait()
    batches = FOREVER if method in ("spawn", "forkserver") else EPOCH
    options = {"multiprocessing_context": method} if workers else {}
    made = torch.utils.data.DataLoader(
        Numbers(batches * BATCH),
        BATCH,
        num_workers=workers,
        pin_memory=pinned,
        **options,
    )
    stream = _epochs(made)
    for number in trial.tries():
        batch = next(stream).to(trial.device, non_blocking=pinned)
        first = number % batches * BATCH
        expected = [(first + each) % EPOCH for each in range(BATCH)]
        if batch[:, 0].tolist() != expected:
            raise WrongNumbers(f"batch {number} holds {batch[:, 0].tolist()}, not {expected}")
        _ = batch @ weight
    stream.close()


def _epochs(made: Any) -> Any:
    while True:
        yield from made


def copies(trial: Experiment) -> None:
    """Copy to the device and back, and see whether it is the same."""
    torch, pinned = trial.torch, trial.arguments["pinned"]
    if pinned and trial.device == "cpu":
        raise NotHere("no GPU")
    size = trial.arguments["bytes"] if trial.device == "cuda" else trial.arguments["bytes"] // 4
    here = torch.randint(256, (size,), dtype=torch.uint8)
    back = torch.empty_like(here)
    if pinned:
        here, back = here.pin_memory(), back.pin_memory()
    there = torch.empty(size, dtype=torch.uint8, device=trial.device)
    fastest_to = fastest_from = 0.0
    for _ in trial.tries():
        back.zero_()
        trial.wait()
        began = time.perf_counter()
        there.copy_(here, non_blocking=pinned)
        trial.wait()
        middle = time.perf_counter()
        back.copy_(there, non_blocking=pinned)
        trial.wait()
        fastest_to = max(fastest_to, size / (middle - began))
        fastest_from = max(fastest_from, size / (time.perf_counter() - middle))
        if not torch.equal(here, back):
            raise WrongNumbers("what came back is not what was sent")
    trial.figures["bytes_per_s"] = fastest_to
    trial.figures["bytes_per_s_back"] = fastest_from
