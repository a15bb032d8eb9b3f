"""Validation of 60 s after the first epoch, over tensors in memory: no loader, no line.

A person sees the loss lines stop for a minute with one core busy, then an accuracy.
"""

from __future__ import annotations

import time

import torch
from knobs import STEPS, lasting
from ordinary import AFTERWARDS, WIDTH, make_loader, make_model, make_optimizer, train
from torch import nn


@torch.no_grad()
def validate(model: nn.Module) -> float:
    model.eval()
    x, y = torch.randn(256, WIDTH), torch.randint(10, (256,))
    right = seen = 0
    until = time.monotonic() + lasting(60)
    while time.monotonic() < until:
        right += int((model(x).argmax(1) == y).sum())
        seen += len(y)
    model.train()
    return right / seen


def main() -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    step = train(model, optimizer, make_loader(STEPS))
    print(f"accuracy {validate(model):.3f}", flush=True)
    train(model, optimizer, make_loader(AFTERWARDS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
