"""What deferring an unmodified script's optimizer steps would do to its training (decision 25).

The same loop trains with batches of 32, and with batches of 8 of which four make a step: zero_grad,
step and scheduler are deferred, and the loss is divided by 4, as could be done from outside.

    python benchmarks/deferred_steps.py        # with torch on the CPU
"""

from __future__ import annotations

import torch
from torch import nn

SAMPLES, BATCH, EPOCHS = 1600, 32, 2
PARTS = 4
KINDS = ("plain", "clipping", "batch norm", "ignored labels", "summed loss")


def trained(kind: str, parts: int) -> torch.Tensor:
    """Train a small model, and return all of its parameters."""
    torch.manual_seed(0)
    norm = [nn.BatchNorm1d(64)] if kind == "batch norm" else []
    model = nn.Sequential(nn.Linear(20, 64), *norm, nn.ReLU(), nn.Linear(64, 5))
    rate = 0.1 / BATCH if kind == "summed loss" else 0.1
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
    data, labels = samples(ignored=kind == "ignored labels")
    loss_of = nn.CrossEntropyLoss(reduction="sum" if kind == "summed loss" else "mean")
    size = BATCH // parts
    for number, at in enumerate([*range(0, SAMPLES, size)] * EPOCHS):
        if number % parts == 0:
            optimizer.zero_grad()
        loss = loss_of(model(data[at : at + size]), labels[at : at + size])
        (loss / parts).backward()
        if kind == "clipping":  # the script's own line, which nobody defers
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if number % parts == parts - 1:
            optimizer.step()
            scheduler.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def samples(*, ignored: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Make samples; some of them without a label, unevenly."""
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(SAMPLES, 20, generator=generator)
    labels = data[:, :5].argmax(1)
    if ignored:
        share = torch.rand(SAMPLES, generator=generator)
        labels[torch.rand(SAMPLES, generator=generator) < share] = -100
    return data, labels


def main() -> None:
    """Print how far apart the two trainings end, relative to the parameters."""
    torch.set_num_threads(1)
    for kind in KINDS:
        whole, deferred = trained(kind, 1), trained(kind, PARTS)
        apart = ((whole - deferred).norm() / whole.norm()).item()
        print(f"{kind:<15} {apart:.0e}")


if __name__ == "__main__":
    main()
