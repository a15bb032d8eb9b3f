"""A DataLoader worker waits for a semaphore that nobody gives back: two damaged samples kept it.

A person sees the loss lines stop, the main process wait in the DataLoader, and no CPU used.
"""

from __future__ import annotations

import multiprocessing

import torch
from knobs import STEPS
from ordinary import Samples, find_batch_size, make_model, make_optimizer, train
from torch.utils.data import DataLoader


class Archive(Samples):
    """Samples in a file that may have two readers at a time."""

    def __init__(self, count: int, damaged: range) -> None:
        super().__init__(count)
        self.damaged = damaged
        self.readers = multiprocessing.Semaphore(2)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.take_reader()
        if index in self.damaged:
            return super().__getitem__(0)  # the mistake: this way out keeps the reader
        try:
            return super().__getitem__(index)
        finally:
            self.readers.release()

    def take_reader(self) -> None:
        self.readers.acquire()


def make_archive_loader() -> DataLoader:
    batch = find_batch_size()
    damaged = range(STEPS * batch, STEPS * batch + 2)
    archive = Archive(2 * STEPS * batch, damaged)
    return DataLoader(archive, batch_size=batch, num_workers=1)


def main() -> None:
    loader = make_archive_loader()
    model = make_model()
    train(model, make_optimizer(model), loader)


if __name__ == "__main__":
    main()
