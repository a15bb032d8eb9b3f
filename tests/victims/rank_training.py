"""Two ranks train with DDP and save with torch.save; rank 0 writes, all resume from what it wrote.

``fault-RANK`` in the working folder names where that rank deadlocks, once: backward, allreduce,
loader or lock (in the script's own code); or that it validates for a minute. What the ranks do is
told in ``told``, one JSON object a line. A second argument names the folder for all of this; ranks
of several hosts share it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, PACE, EVERY = int(sys.argv[1]), 0.03, 10
RANK = int(os.environ["RANK"])
SHARED = Path(*sys.argv[2:3])
LAST = SHARED / "last.pt"
SETTINGS = (
    "ROCSTEADY_STRATEGY",
    "ROCSTEADY_MICRO_BATCH",
    "NCCL_P2P_DISABLE",
    "HIP_VISIBLE_DEVICES",
)


def tell(what: str, step: int) -> None:
    line = {"what": what, "rank": RANK, "step": step, "at": time.time(), "pid": os.getpid()}
    line["settings"] = {name: os.environ.get(name) for name in SETTINGS}
    with (SHARED / "told").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def deadlock(where: str) -> None:
    """Take a lock twice, if that is what was asked for."""
    asked = SHARED / f"fault-{RANK}"
    if asked.exists() and asked.read_text(encoding="utf-8") == where:
        asked.unlink()
        lock = threading.Lock()
        with lock:
            lock.acquire()


def validate() -> None:
    """Compute for a while, and leave the other ranks waiting."""
    asked = SHARED / f"fault-{RANK}"
    if asked.exists() and asked.read_text(encoding="utf-8") == "validate":
        asked.unlink()
        ends = time.monotonic() + 60.0
        while time.monotonic() < ends:
            torch.randn(64, 64).matmul(torch.randn(64, 64))
        tell("validated", 0)


class Points(Dataset):
    """The same point at the same place, whenever it is asked for."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __len__(self) -> int:
        return STEPS - self.first

    def __getitem__(self, place: int) -> torch.Tensor:
        deadlock("loader")
        return torch.full((8,), (self.first + place + RANK) / STEPS)


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, value: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - torch's
        return value.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - torch's
        deadlock("backward")
        return gradient


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = 0
    if LAST.exists():
        saved = torch.load(LAST)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    first = step
    for point in DataLoader(Points(first), batch_size=1):
        deadlock("lock")
        loss = Backward.apply(model(point)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        validate()
        deadlock("allreduce")
        dist.all_reduce(loss)
        step += 1
        if step == first + 1:
            tell("first step", step)
        if step % EVERY == 0 and RANK == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, SHARED / "last.tmp")
            (SHARED / "last.tmp").replace(LAST)
            tell("saved", step)
        time.sleep(PACE)
    if RANK == 0:
        weights = [value.tolist() for value in model.state_dict().values()]
        (SHARED / "weights.json").write_text(json.dumps(weights), encoding="utf-8")
    dist.destroy_process_group()
    tell("done", step)


if __name__ == "__main__":
    main()
