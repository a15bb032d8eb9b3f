"""The first step takes 90 s: a thread of the same process fills a kernel cache, and it waits.

No child, next to no CPU, and the training thread on a lock. A person sees "training starts", then
nothing for a minute and a half, but for a file under cache/ that grows.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from knobs import lasting
from ordinary import make_loader, make_model, make_optimizer, train
from torch import nn


class Searched(nn.Module):
    """A layer whose fastest kernel is looked for when it is first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = ThreadPoolExecutor(1)
        self.found = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.found:
            self.found = self.pool.submit(self.fill_cache, Path("cache")).result()
        return x

    def fill_cache(self, folder: Path) -> int:
        folder.mkdir(exist_ok=True)
        until = time.monotonic() + lasting(90)
        with (folder / "gfx1100.ufdb.txt").open("wb") as cache:
            while time.monotonic() < until:
                cache.write(os.urandom(8192))
                cache.flush()
                time.sleep(0.5)  # the device times a candidate
            return cache.tell()


def main() -> None:
    model = nn.Sequential(make_model(), Searched())
    loader = make_loader()
    print("training starts", flush=True)
    train(model, make_optimizer(model), loader)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
