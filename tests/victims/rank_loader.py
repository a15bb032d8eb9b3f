"""Ranks train with DDP; the loader's worker of the last rank deadlocks at the same place each time.

Without worker processes it does not. Arguments as those of ``rank_training.py``; ``told`` too.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

STEPS, AT = int(sys.argv[1]), 25
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def tell(what: str, step: int) -> None:
    settings = {"ROCSTEADY_STRATEGY": os.environ.get("ROCSTEADY_STRATEGY")}
    line = {"what": what, "rank": RANK, "step": step, "pid": os.getpid(), "settings": settings}
    with (Path(sys.argv[2]) / "told").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


class Points(Dataset):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, place: int) -> torch.Tensor:
        if place == AT and RANK == WORLD - 1 and get_worker_info() is not None:
            lock = threading.Lock()
            with lock:
                lock.acquire()
        return torch.full((8,), place / STEPS)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, point in enumerate(DataLoader(Points(), batch_size=1, num_workers=1), 1):
        optimizer.zero_grad()
        model(point).mean().backward()
        optimizer.step()
        if step == 1:
            tell("first step", step)
        time.sleep(0.03)
    dist.destroy_process_group()
    tell("done", STEPS)


if __name__ == "__main__":
    main()
