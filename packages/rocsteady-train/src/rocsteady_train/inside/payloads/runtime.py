"""What a training rests on: torch, a device, the DataLoader, and the disk for checkpoints."""

from __future__ import annotations

import os
import time
from typing import Any

from .experiment import Experiment, NotHere, WrongNumbers


def import_torch(trial: Experiment) -> None:
    """Import torch."""
    for _ in trial.tries():
        began = time.monotonic()
        torch = trial.torch
        trial.figure("seconds", time.monotonic() - began)
        trial.say("version", torch.__version__)


def device_visible(trial: Experiment) -> None:
    """Count the GPUs that torch sees, and make a number on each."""
    torch = trial.torch
    for _ in trial.tries():
        if not torch.cuda.is_available():
            raise NotHere("no GPU")
        for index in range(torch.cuda.device_count()):
            one = torch.ones((), device=f"cuda:{index}") + 1
            trial.compare(one, torch.tensor(2.0), 1e-6)
        trial.figure("gpus", torch.cuda.device_count())
        trial.say("gpu", torch.cuda.get_device_name(0))


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


SPARE = 4  # times the size must be free


def checkpoint(trial: Experiment) -> None:
    """Save to the disk for good, and load it again."""
    torch, size = trial.torch, trial.arguments["bytes"]
    if hasattr(os, "statvfs"):
        disk = os.statvfs(trial.folder)
        if disk.f_bavail * disk.f_frsize < SPARE * size:
            raise NotHere(f"fewer than {SPARE * size} bytes are free where it would be written")
    weights = {"weights": torch.randn(size // 4, device=trial.device)}
    path = os.path.join(trial.folder, "checkpoint.pt")
    slowest = fastest = 0.0
    for _ in trial.tries():
        began = time.perf_counter()
        with open(path, "wb") as stream:
            torch.save(weights, stream)
            stream.flush()
            os.fsync(stream.fileno())
        rate = os.path.getsize(path) / (time.perf_counter() - began)
        fastest, slowest = max(fastest, rate), min(slowest or rate, rate)
        loaded = torch.load(path, map_location=trial.device, weights_only=True)
        if not torch.equal(loaded["weights"], weights["weights"]):
            raise WrongNumbers("what was loaded is not what was saved")
        os.remove(path)
    trial.figure("bytes_per_s", fastest)
    trial.figure("bytes_per_s_slowest", slowest)
