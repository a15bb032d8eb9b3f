"""Two real ranks: gradients are exchanged once a batch, however many parts each of them has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rocsteady_train.loop.micro_batches import MicroBatches
from torch import nn

SAMPLES = {0: 24, 1: 5}  # three parts, and one
PART, STEPS = 8, 4


class Counts(nn.Module):
    """Has a buffer that moves: DistributedDataParallel sends it from rank 0 to the others."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
        return x


def train(rank: int, *, in_parts: bool) -> list[list[float]]:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), Counts(), nn.Linear(8, 3)).double()
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parts = MicroBatches(model, PART, alone=False)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        batch = (
            torch.randn(SAMPLES[rank], 6, generator=generator, dtype=torch.float64),
            torch.arange(SAMPLES[rank]) % 3,
        )
        optimizer.zero_grad()

        def compute(part: Any) -> torch.Tensor:
            return nn.functional.cross_entropy(model(part[0]), part[1])

        if in_parts:
            parts.backward(batch, compute, reduction="mean", zero=optimizer.zero_grad)
            assert parts.trained == (SAMPLES[rank], min(PART, SAMPLES[rank]))
        else:
            compute(batch).backward()
        optimizer.step()
    return [parameter.flatten().tolist() for parameter in model.parameters()]


def case_two_ranks_with_different_numbers_of_parts() -> float:
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, str(rank), folder],
                stdout=subprocess.PIPE,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
            )
            for rank in SAMPLES
        ]
        told = []
        for rank in ranks:
            try:
                told.append(json.loads(rank.communicate(timeout=120)[0]))
            finally:
                rank.kill()
                rank.wait()
    worst = 0.0
    for whole, parts in told:
        assert parts == told[0][1]  # all ranks have the same weights
        for one, other in zip(whole, parts, strict=True):
            worst = max(worst, *(abs(a - b) for a, b in zip(one, other, strict=True)))
    assert worst < 1e-14
    return worst


def main() -> None:
    rank = int(sys.argv[1])
    store = Path(sys.argv[2], "store")
    dist.init_process_group(
        "gloo",
        init_method=store.as_uri(),
        rank=rank,
        world_size=len(SAMPLES),
        timeout=timedelta(seconds=60),
    )
    print(json.dumps([train(rank, in_parts=False), train(rank, in_parts=True)]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
