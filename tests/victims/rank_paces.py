"""Ranks of which one may be slower than the others, at every step, or only seems so.

torchrun ... rank_paces.py data|forward|validate|join STEPS
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.utils.data import DataLoader, Dataset

WHAT, STEPS = sys.argv[1], int(sys.argv[2])
RANK, SLOW = int(os.environ["RANK"]), 2
PACE, LONGER = 0.05, 0.3  # seconds
UNEVEN = 40  # batches that each rank has more than the one before it


class Points(Dataset):
    def __len__(self) -> int:
        return STEPS + (UNEVEN * RANK if WHAT == "join" else 0)

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(LONGER if (WHAT, RANK) == ("data", SLOW) else PACE)
        return torch.full((8,), place / STEPS)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(LONGER if (WHAT, RANK) == ("forward", SLOW) else PACE)
        return self.layer(x)


def validate(model: nn.Module) -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(40):
            model(torch.ones(64, 8))
    model.train()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = Net()
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Join([model], enable=WHAT == "join"):
        for step, batch in enumerate(DataLoader(Points(), batch_size=1), 1):
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
            if WHAT == "validate" and step % 10 == 0:
                if RANK == 0:
                    validate(net)
                if step % 20 == 0:  # else the others wait in their next step
                    dist.barrier()
    dist.destroy_process_group()


main()
