"""For 60 s the gradient scaler skips every step, because the gradients are infinite.

Batches come and go, backward runs, but the optimizer never steps. A person sees the loss lines
say `inf`, and the run recover when the bad shard is over.
"""

from __future__ import annotations

import time

import torch
from knobs import STEPS, lasting
from ordinary import AFTERWARDS, loss_of, make_loader, make_model, make_optimizer
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader


class ScaledTraining:
    """A model that is trained with a scaler, as in fp16."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**6)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.scaler.scale(loss_of(self.model, x, y)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update(1024.0)


def main() -> None:
    loader: DataLoader = make_loader(STEPS)
    model = make_model()
    training = ScaledTraining(model, make_optimizer(model))
    for x, y in loader:
        training.step(x, y)
    print("epoch 1 done", flush=True)
    until, skipped = time.monotonic() + lasting(60), 0
    while time.monotonic() < until:
        for x, y in make_loader(20, batch=loader.batch_size):
            training.step(x * float("inf"), y)
            skipped += 1
    print(f"skipped {skipped}", flush=True)
    for x, y in make_loader(AFTERWARDS, batch=loader.batch_size):
        training.step(x, y)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
