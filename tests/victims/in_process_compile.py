"""The first step takes 120 s in one native call, as MIOpen's in-process compiler does.

No child, no file, no line; the Python stack is the same all the time and only the native frames
change. A person sees "training starts" and one core busy for two minutes.
"""

from __future__ import annotations

import time
import warnings

import torch
from knobs import lasting
from ordinary import make_loader, make_model, make_optimizer, train
from torch import nn

warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is old, and still in use


@torch.jit.script
def many_passes(rounds: int) -> torch.Tensor:
    x = torch.eye(160)
    for _ in range(rounds):
        x = x + torch.rand(160, 160)
        x = x / torch.linalg.svdvals(x)[0]
        x = x + torch.sort(x.flatten())[0].reshape(160, 160)
        x = torch.fft.fft2(x).real.softmax(0)
        x = x @ x.cumsum(1).cos()
    return x


class JustInTime(nn.Module):
    """A layer that is compiled when it is first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.compiled = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.compiled:
            self.compile_in_process()
        return x

    def compile_in_process(self) -> None:
        many_passes(20)
        began = time.perf_counter()
        many_passes(50)
        many_passes(round(50 * lasting(120) / (time.perf_counter() - began)))
        self.compiled = True


def main() -> None:
    model = nn.Sequential(make_model(), JustInTime())
    loader = make_loader()
    print("training starts", flush=True)
    train(model, make_optimizer(model), loader)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
