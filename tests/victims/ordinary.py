"""What most victims share, as the files beside a train.py do: a model, data, a steady loop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import torch
from knobs import STEP_SECONDS, STEPS
from torch import nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, Dataset

WIDTH = 384
AFTERWARDS = 50  # steps that follow a pause, to show that all is well
Batch = Sequence[torch.Tensor]  # inputs and labels
TRIED_WITH = 128  # rows, when it is measured how long a step takes

torch.set_num_threads(1)  # two ranks, or a trainer and its worker, share two cores


class Samples(Dataset):
    """As many rows of noise as wanted, with a label each."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.rows = torch.randn(1024, WIDTH, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.rows[index % len(self.rows)], index % 10


def make_model() -> nn.Module:
    torch.manual_seed(0)
    hidden = [layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 10))


def make_optimizer(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=0.01)


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x), y)


def train_step(model: nn.Module, optimizer: Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = loss_of(model, x, y)
    loss.backward()
    optimizer.step()
    return loss.item()


def find_batch_size(seconds: float = STEP_SECONDS) -> int:
    """Give the number of rows with which a step takes about this long on this machine."""
    model, took = make_model(), []
    x, y = torch.randn(TRIED_WITH, WIDTH), torch.zeros(TRIED_WITH, dtype=torch.long)
    for _ in range(12):
        began = time.perf_counter()
        loss_of(model, x, y).backward()
        took.append(time.perf_counter() - began)
    return max(4, min(4096, round(TRIED_WITH * seconds / sorted(took)[3])))


def make_loader(steps: int = STEPS, batch: int | None = None, workers: int = 0) -> DataLoader:
    batch = batch or find_batch_size()
    return DataLoader(Samples(steps * batch), batch_size=batch, num_workers=workers)


def train(model: nn.Module, optimizer: Optimizer, batches: Iterable[Batch], first: int = 0) -> int:
    """Train on every batch, say so now and then, and give the number of the next step."""
    step = first
    for x, y in batches:
        loss = train_step(model, optimizer, x, y)
        step += 1
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    return step


def decompose(size: int) -> float:
    """Run one LAPACK call, and give the seconds it took."""
    matrix = torch.rand(size, size)
    began = time.perf_counter()
    torch.linalg.svd(matrix)
    return time.perf_counter() - began


def size_lasting(seconds: float) -> int:
    """Give the size of matrix with which the call takes about this long, on this machine."""
    decompose(100)
    size = 300
    while (took := decompose(size)) < seconds / 30:
        size = min(2 * size, round(size * (seconds / took) ** (1 / 3)))
    return int(size * (seconds / took) ** (1 / 3))
