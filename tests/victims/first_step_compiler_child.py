"""The first step takes 90 s: a compiler runs as a child for each kernel, as hipcc does.

A person sees "training starts" and then nothing for a minute and a half, and cc1 at 100 % in top.
"""

from __future__ import annotations

import subprocess
import time

import torch
from knobs import lasting
from ordinary import make_loader, make_model, make_optimizer, train
from torch import nn

KERNEL = "\n".join(
    f"float kernel{n}(float *a, float *b) {{ float s = {n};"
    f" for (int i = 0; i < 4096; i++)"
    f" for (int j = 0; j < {n + 3}; j++) s += a[i * {n + 1} + j] * b[j];"
    " return s; }"
    for n in range(60)
)


class Compiled(nn.Module):
    """A layer whose kernels are compiled when it is first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.kernels:
            self.compile_kernels()
        return x

    def compile_kernels(self) -> None:
        until = time.monotonic() + lasting(90)
        command = ["gcc", "-x", "c", "-O3", "-march=native", "-S", "-o", "-", "-"]
        while time.monotonic() < until:
            subprocess.run(command, input=KERNEL, text=True, check=True, stdout=subprocess.DEVNULL)
            self.kernels += 1


def main() -> None:
    model = nn.Sequential(make_model(), Compiled())
    loader = make_loader()
    print("training starts", flush=True)
    train(model, make_optimizer(model), loader)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
