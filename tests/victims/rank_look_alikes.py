"""Ranks that look stuck and are not: one of them works for long while the others wait for it.

    torchrun ... rank_look_alikes.py WHAT SECONDS [URL]

What the ranks do is told in ``told``, a JSON object a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

WHAT, SECONDS = sys.argv[1], float(sys.argv[2])
RANK = int(os.environ["RANK"])
STEPS, PACE = 40, 0.02
MIDDLE = 20  # the step after which one rank is apart
BUSY = "import sys, time\nend = time.time() + float(sys.argv[1])\nwhile time.time() < end: pass"


def tell(what: str) -> None:
    line = {"what": what, "rank": RANK, "at": time.time(), "pid": os.getpid()}
    with Path("told").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


class Points(Dataset):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, place: int) -> torch.Tensor:
        if WHAT == "loader" and RANK == 1 and place == MIDDLE:
            end = time.monotonic() + SECONDS  # a damaged archive, say, that is searched
            while time.monotonic() < end:
                time.sleep(1.0)
                sum(range(200_000))
        return torch.full((8,), place / STEPS)


def validate(model: nn.Module) -> None:
    if RANK == 0:
        model.eval()
        end = time.monotonic() + SECONDS
        with torch.no_grad():
            while time.monotonic() < end:
                model(torch.ones(64, 8))
                time.sleep(0.01)
        model.train()
    dist.barrier()


def download(_: nn.Module) -> None:
    if RANK == 1:
        with urllib.request.urlopen(sys.argv[3]) as answer:  # noqa: S310 - of this machine
            Path("downloaded").write_bytes(answer.read())
    dist.barrier()


def save(model: nn.Module) -> None:
    if RANK == 0:
        end = time.monotonic() + SECONDS
        with Path("last.tmp").open("wb") as stream:
            while time.monotonic() < end:  # to a disk that takes a little at a time
                stream.write(bytes(100_000))
                stream.flush()
                os.fsync(stream.fileno())
                time.sleep(2.0)
        torch.save(model.state_dict(), "last.tmp")
        Path("last.tmp").replace("last.pt")
    dist.barrier()


def compile_first() -> None:
    if RANK == 1:
        subprocess.run([sys.executable, "-c", BUSY, str(SECONDS)], check=True)


IN_THE_MIDDLE: dict[str, Callable[[nn.Module], None]] = {
    "validates": validate,
    "downloads": download,
    "saves": save,
}


def train(model: nn.parallel.DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    for step, point in enumerate(DataLoader(Points(), batch_size=1)):
        if WHAT == "compiles" and step == 0:
            compile_first()
        loss = model(point).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            tell("first step")
        if step == MIDDLE and WHAT in IN_THE_MIDDLE:
            IN_THE_MIDDLE[WHAT](model.module)
        if WHAT == "is slow":
            time.sleep(SECONDS / STEPS)
        if WHAT == "uneven" and RANK == 0 and step > MIDDLE:
            time.sleep(SECONDS / MIDDLE)
        if WHAT == "uneven" and RANK != 0 and step == MIDDLE:
            return  # this rank has no more data
        time.sleep(PACE)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if WHAT == "uneven":
        with model.join():
            train(model, optimizer)
    else:
        train(model, optimizer)
    dist.barrier()
    dist.destroy_process_group()
    tell("done")


if __name__ == "__main__":
    main()
