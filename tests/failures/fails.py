"""Fails in the way that is asked for: real programs make the texts that are named.

Run by an interpreter with torch: ``python fails.py CASE``; cases of ranks under torchrun.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
import time
from collections.abc import Callable

import torch
from torch import distributed
from torch.utils.data import DataLoader

CASE = sys.argv[1]
SOON = dt.timedelta(seconds=5)


class Numbers:
    """A dataset whose twentieth sample is its last."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> object:
        if index == 20:
            _fail_in_worker()
        return torch.zeros(3)


def _fail_in_worker() -> None:
    if CASE == "worker_raises":
        raise KeyError("label")
    if CASE == "worker_exits":
        os._exit(3)
    if CASE == "worker_slow":
        time.sleep(60)
    os.kill(os.getpid(), {"worker_killed": 9, "worker_crashes": 11, "worker_bus": 7}[CASE])


def load() -> None:
    timeout = 2 if CASE == "worker_slow" else 0
    for step, _ in enumerate(DataLoader(Numbers(), batch_size=4, num_workers=2, timeout=timeout)):
        sys.stdout.write(f"step {step} loss 0.1\n")


def ranks() -> None:
    distributed.init_process_group("gloo", timeout=SOON)
    for _ in range(3):
        distributed.all_reduce(torch.zeros(3))
    if distributed.get_rank() == 1:
        if CASE == "rank_raises":
            raise KeyError("label")
        if CASE == "rank_slow":
            time.sleep(9)
        else:
            os.kill(os.getpid(), {"rank_killed": 9, "rank_crashes": 11}[CASE])
    distributed.all_reduce(torch.zeros(3))


def meet() -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="2")
    distributed.init_process_group("gloo", timeout=dt.timedelta(seconds=1))


def corrupt() -> None:
    torch.save({"weight": torch.zeros(1000)}, "whole.pt")
    with open("whole.pt", "rb") as whole, open("half.pt", "wb") as half:  # noqa: PTH123 - plain
        half.write(whole.read()[:2000])
    torch.load("half.pt")


def not_a_number() -> None:
    with torch.autograd.detect_anomaly():
        x = torch.tensor([0.0], requires_grad=True)
        (torch.sqrt(x) * 0).sum().backward()


def interrupted() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


CASES: dict[str, Callable[[], object]] = {
    "no_gpu": lambda: torch.zeros(3).cuda(),
    "shapes": lambda: torch.zeros(3, 4) @ torch.zeros(5, 6),
    "host_memory": lambda: torch.zeros(1 << 45),
    "full_disk": lambda: torch.save(torch.zeros(100_000), "/dev/full"),
    "corrupt": corrupt,
    "not_a_number": not_a_number,
    "alone": meet,
    "interrupted": interrupted,
}

if __name__ == "__main__":
    if CASE.startswith("worker"):
        load()
    elif CASE.startswith("rank"):
        ranks()
    else:
        CASES[CASE]()
