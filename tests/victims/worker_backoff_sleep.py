"""A loader worker backs off for 60 s after "429 Too Many Requests", and then goes on.

A person sees the loss lines stop, no CPU, and a worker in time.sleep.
"""

from __future__ import annotations

import time

import torch
from knobs import STEPS, lasting
from ordinary import AFTERWARDS, Samples, find_batch_size, make_model, make_optimizer, train
from torch.utils.data import DataLoader


class Downloaded(Samples):
    """Samples from a server that sometimes asks for patience."""

    def __init__(self, count: int, refused: int) -> None:
        super().__init__(count)
        self.refused = refused

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == self.refused:
            self.back_off()
        return super().__getitem__(index)

    def back_off(self) -> None:
        time.sleep(lasting(60))


def main() -> None:
    batch = find_batch_size()
    samples = Downloaded((STEPS + AFTERWARDS) * batch, refused=STEPS * batch)
    model = make_model()
    train(model, make_optimizer(model), DataLoader(samples, batch_size=batch, num_workers=1))
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
