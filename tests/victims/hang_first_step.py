"""The first forward builds a kernel under a lock, and the build takes that lock again.

A person sees "training starts", and then nothing: no step, no CPU, no file.
"""

from __future__ import annotations

import threading

import torch
from ordinary import make_loader, make_model, make_optimizer, train
from torch import nn

BUILD_LOCK = threading.Lock()


class LazyKernel(nn.Module):
    """A layer that is built when it is first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.built = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.built:
            with BUILD_LOCK:
                self.build_kernel()
        return x

    def build_kernel(self) -> None:
        with BUILD_LOCK:  # the mistake: forward() holds it already
            self.built = True


def main() -> None:
    model = nn.Sequential(make_model(), LazyKernel())
    loader = make_loader()
    print("training starts", flush=True)
    train(model, make_optimizer(model), loader)


if __name__ == "__main__":
    main()
