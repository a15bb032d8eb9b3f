"""The first step tries 40 candidates of a kernel, about 100 s, and only prints how it goes.

Each candidate is one native call at the same line. A person sees a counter that goes up.
"""

from __future__ import annotations

import torch
from knobs import lasting
from native_work import decompose, size_lasting
from ordinary import make_loader, make_model, make_optimizer, train
from torch import nn

CANDIDATES = 40


class Tuned(nn.Module):
    """A layer that is tuned when it is first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.best = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.best:
            self.best = self.tune()
        return x

    def tune(self) -> float:
        size, times = size_lasting(lasting(100 / CANDIDATES)), []
        for candidate in range(1, CANDIDATES + 1):
            times.append(decompose(size))
            print(f"tuning {candidate}/{CANDIDATES}: {times[-1]:.3f} s", flush=True)
        return min(times)


def main() -> None:
    model = nn.Sequential(make_model(), Tuned())
    loader = make_loader()
    train(model, make_optimizer(model), loader)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
