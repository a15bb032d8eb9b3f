"""Ranks that look stuck and are not: one of them works for long while the others wait for it.

    torchrun ... rank_look_alikes.py WHAT SECONDS [URL]

What the ranks do is told in ``told``, a JSON object a line.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

WHAT, SECONDS = sys.argv[1], float(sys.argv[2])
RANK = int(os.environ["RANK"])
STEPS, PACE = 40, 0.02
MIDDLE = 20  # the step after which one rank is apart
BUSY = "import sys, time\nend = time.time() + float(sys.argv[1])\nwhile time.time() < end: pass"
LOCKS = "import fcntl, sys, time; f = open('lock', 'w'); fcntl.flock(f, 2); print(flush=True)"
LATE = 80.0 if SECONDS > 1 else SECONDS  # seconds to the first step
ACCUMULATED = 4  # batches a step


def tell(what: str) -> None:
    line = {"what": what, "rank": RANK, "at": time.time(), "pid": os.getpid()}
    with Path("told").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


class Points(Dataset):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, place: int) -> torch.Tensor:
        if WHAT in ("loader", "workers") and RANK == 1 and place == MIDDLE:
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


def work(seconds: float) -> None:
    """Use a little of a core, as what reads and parses does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100_000))
        time.sleep(0.05)


def meet(_: nn.Module) -> None:
    if RANK == 0:
        work(SECONDS)
    dist.monitored_barrier(timeout=timedelta(seconds=10 * SECONDS), wait_all_ranks=True)


def exchange(_: nn.Module) -> None:
    if RANK == 1:
        work(SECONDS)
    found: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(found, {"rank": RANK})
    dist.broadcast_object_list(found, src=1)


def scatter(_: nn.Module) -> None:
    if RANK == 0:
        work(SECONDS)
    mine: list[object] = [None]
    dist.scatter_object_list(mine, ["a", "b"] if RANK == 0 else None, src=0)


def pass_on(_: nn.Module) -> None:
    """Be a stage of a pipeline, the first of which takes long."""
    for part in range(3):
        if RANK == 0:
            work(SECONDS / 3)
            dist.send(torch.full((8,), float(part)), dst=1)
        else:
            dist.recv(torch.empty(8), src=0)


def _prepare(_: int) -> None:
    time.sleep(SECONDS)


def spawn(_: nn.Module) -> None:
    if RANK == 0:
        mp.spawn(_prepare, nprocs=2)
    dist.barrier()


def call(_: nn.Module) -> None:
    if RANK == 0:
        subprocess.run(["sleep", str(SECONDS)], check=True)
    dist.barrier()


def lock(_: nn.Module) -> None:
    """Wait for a cache that another job of the user has locked."""
    if RANK == 1:
        code = f"{LOCKS}; time.sleep({SECONDS})"
        other = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
        )
        if other.stdout:
            other.stdout.readline()
        with Path("lock").open("w", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
        other.wait()
    dist.barrier()


class SlowStorage(dcp.FileSystemWriter):
    """A disk of rank 0 that takes long."""

    def write_data(self, *given: object) -> object:
        if RANK == 0:
            work(SECONDS)
        return super().write_data(*given)


def save_beside(model: nn.Module) -> None:
    """Save in another thread, and wait for it."""
    writer = SlowStorage("saved")
    dcp.async_save({"model": model.state_dict()}, storage_writer=writer).result()


IN_THE_MIDDLE: dict[str, Callable[[nn.Module], None]] = {
    "validates": validate,
    "downloads": download,
    "saves": save,
    "monitored barrier": meet,
    "objects": exchange,
    "scatters": scatter,
    "pipeline": pass_on,
    "spawns": spawn,
    "calls": call,
    "file lock": lock,
    "saves beside": save_beside,
}


class Branches(nn.Module):
    """Does not use all of its parameters in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(8, 1) for _ in range(2))
        self.step = 0

    def forward(self, point: torch.Tensor) -> torch.Tensor:
        self.step += 1
        if self.step == MIDDLE and RANK == 1:
            work(SECONDS)
        return self.parts[self.step % 2](point)


def accumulate(model: nn.parallel.DistributedDataParallel, point: torch.Tensor, step: int) -> None:
    """Go through more batches before ranks meet; one of them takes long on one rank."""
    for batch in range(ACCUMULATED):
        if (step, batch, RANK) == (MIDDLE, 1, 1):
            work(SECONDS)
        with model.no_sync() if batch < ACCUMULATED - 1 else nullcontext():
            model(point).square().mean().backward()


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    workers = 2 if WHAT == "workers" else 0
    for step, point in enumerate(DataLoader(Points(), batch_size=1, num_workers=workers)):
        if WHAT == "compiles" and step == 0:
            compile_first()
        if WHAT == "fsdp" and (step, RANK) == (MIDDLE, 1):
            work(SECONDS)
        optimizer.zero_grad()
        if WHAT == "no sync" and isinstance(model, nn.parallel.DistributedDataParallel):
            accumulate(model, point, step)
        else:
            model(point).square().mean().backward()
        optimizer.step()
        if step == 0:
            tell("first step")
        if step == MIDDLE and WHAT in IN_THE_MIDDLE:
            IN_THE_MIDDLE[WHAT](getattr(model, "module", model))
        if WHAT == "is slow":
            time.sleep(SECONDS / STEPS)
        if WHAT == "uneven" and RANK == 0 and step > MIDDLE:
            time.sleep(SECONDS / MIDDLE)
        if WHAT == "uneven" and RANK != 0 and step == MIDDLE:
            return  # this rank has no more data
        time.sleep(PACE)


def wrapped() -> nn.Module:
    plain = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    if WHAT == "fsdp":
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        return fully_shard(plain, mesh=mesh)
    if WHAT == "unused":
        return nn.parallel.DistributedDataParallel(Branches(), find_unused_parameters=True)
    return nn.parallel.DistributedDataParallel(plain)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if WHAT == "starts late":
        if RANK == 0:
            work(LATE)
        dist.barrier()
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if WHAT == "uneven" and isinstance(model, nn.parallel.DistributedDataParallel):
        with model.join():
            train(model, optimizer)
    else:
        train(model, optimizer)
    dist.barrier()
    dist.destroy_process_group()
    tell("done")


if __name__ == "__main__":
    main()
