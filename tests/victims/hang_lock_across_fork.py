"""Loader workers are forked while a thread of the trainer holds a lock that they need.

In the children that thread does not exist, so the lock stays taken for ever. A person sees the
first epoch go well and the second never begin.
"""

from __future__ import annotations

import threading
import time

import torch
from knobs import STEPS
from ordinary import Samples, find_batch_size, make_model, make_optimizer, train
from torch.utils.data import DataLoader


class Cached(Samples):
    """Samples with a cache whose statistics a thread writes after each epoch."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.lock = threading.Lock()
        self.writing = threading.Event()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.look_up(index)

    def look_up(self, index: int) -> tuple[torch.Tensor, int]:
        with self.lock:
            return super().__getitem__(index)

    def write_statistics(self) -> None:
        with self.lock:
            self.writing.set()
            time.sleep(2)  # a slow disk


def main() -> None:
    batch = find_batch_size()
    samples = Cached(STEPS * batch)
    loader = DataLoader(samples, batch_size=batch, num_workers=1, multiprocessing_context="fork")
    model = make_model()
    optimizer = make_optimizer(model)
    step = 0
    for epoch in range(2):
        step = train(model, optimizer, loader, step)
        print(f"epoch {epoch} done", flush=True)
        threading.Thread(target=samples.write_statistics, daemon=True).start()
        samples.writing.wait()  # makes certain what else would be a matter of luck


if __name__ == "__main__":
    main()
