"""What a training rests on: torch, a device, memory, the DataLoader, the disk for checkpoints."""

from __future__ import annotations

import os
import random
import time
from typing import Any

from .experiment import Experiment, NotHere, WrongNumbers, is_lack


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
    trial.figures["bytes_per_s"] = fastest
    trial.figures["bytes_per_s_slowest"] = slowest


MIB = 1 << 20
SHARE_OF_GPU = 0.5  # of what is free, for blocks that come and go
SHARE_OF_HOST = 1 / 32  # of what is available: nobody else is to notice
MAX_HOST_BYTES = 256 * MIB
UNKNOWN_HOST = 64 * MIB
CGROUP = "/sys/fs/cgroup"


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


def churn(trial: Experiment) -> None:
    """Take and give back blocks of all sizes in no order, and see that none is written over."""
    torch = trial.torch
    most = int(free_bytes(trial) * SHARE_OF_GPU) if trial.device == "cuda" else room_bytes()
    chance = random.Random(0)  # noqa: S311 - sizes, not secrets
    held: list[tuple[Any, int]] = []
    used = 0
    for number in trial.tries():
        size = int(2 ** chance.uniform(10, 24))
        while held and used + size > most:
            block, mark = held.pop(chance.randrange(len(held)))
            used -= block.numel()
            _intact(block, mark)
        mark = number % 251
        held.append((torch.full((size,), mark, dtype=torch.uint8, device=trial.device), mark))
        used += size
        if chance.random() < 1 / 3:
            block, mark = held.pop(chance.randrange(len(held)))
            used -= block.numel()
            _intact(block, mark)
    if trial.device == "cuda":
        reserved, allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
        trial.figures["reserved_unused_bytes"] = reserved - allocated


def largest(trial: Experiment) -> None:
    """Find the largest block that can be had and written, by halving."""
    torch = trial.torch
    most = free_bytes(trial) if trial.device == "cuda" else room_bytes()
    for _ in trial.tries():
        low, high, fits = 0, most, most
        while high - low > max(most // 256, MIB):
            trial.alive()
            if _can_have(torch, trial, fits):
                low = fits
            else:
                high = fits
            fits = (low + high) // 2
            if low == most:
                break
        if not low:
            raise MemoryError(f"no block can be had, though {most} bytes are said to be free")
        trial.figures["bytes"] = low
        trial.figures["share"] = low / most


def free_bytes(trial: Experiment) -> int:
    return int(trial.torch.cuda.mem_get_info()[0])


def room_bytes(root: str = "/") -> int:
    """Return how much memory of the host may be used without harm."""
    free = [MAX_HOST_BYTES / SHARE_OF_HOST]
    try:
        with open(os.path.join(root, "proc/meminfo"), encoding="ascii") as stream:
            lines = [line.split() for line in stream if line.startswith("MemAvailable:")]
    except OSError:
        return UNKNOWN_HOST
    free += [int(words[1]) * 1024 for words in lines]
    limit = _number(os.path.join(root, CGROUP.lstrip("/"), "memory.max"))
    used = _number(os.path.join(root, CGROUP.lstrip("/"), "memory.current"))
    if limit is not None and used is not None:
        free.append(max(limit - used, 0))
    return int(min(free) * SHARE_OF_HOST)


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as stream:
            text = stream.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max": no limit


def _can_have(torch: Any, trial: Experiment, size: int) -> bool:
    try:
        block = torch.empty(size, dtype=torch.uint8, device=trial.device)
        block.fill_(1)  # memory of a host is given when it is written
        trial.wait()
    except (RuntimeError, MemoryError) as error:
        if not is_lack(error):
            raise
        return False
    del block
    if trial.device == "cuda":
        torch.cuda.empty_cache()
    return True


def _intact(block: Any, mark: int) -> None:
    if not bool((block == mark).all()):
        raise WrongNumbers(f"a block of {block.numel()} bytes was written over")
