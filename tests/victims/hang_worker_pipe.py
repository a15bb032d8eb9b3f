"""A DataLoader worker reads a pipe from a decoder process that has gone.

The main process still holds a copy of the other end, so there is no end of file. A person sees the
loss lines stop, one zombie, and a worker in a read that never returns.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import torch
from knobs import STEPS
from ordinary import Samples, find_batch_size, make_model, make_optimizer, train
from torch.utils.data import DataLoader


def decode(requests: Connection, answers: Connection, most: int) -> None:
    """Answer requests, and leave after the last that was foreseen."""
    for _ in range(most):
        answers.send(requests.recv() % 10)


class Decoded(Samples):
    """Samples whose labels come from the decoder."""

    def __init__(self, count: int, requests: Connection, answers: Connection) -> None:
        super().__init__(count)
        self.requests, self.answers = requests, answers

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        row, _ = super().__getitem__(index)
        return row, self.ask_decoder(index)

    def ask_decoder(self, index: int) -> int:
        self.requests.send(index)
        return int(self.answers.recv())


def main() -> None:
    batch = find_batch_size()
    (to_read, to_ask), (answers, to_answer) = (multiprocessing.Pipe(duplex=False) for _ in "ab")
    work = (to_read, to_answer, STEPS * batch)
    decoder = multiprocessing.Process(target=decode, args=work, daemon=True)
    decoder.start()  # the mistake: to_read and to_answer are not closed here
    samples = Decoded(2 * STEPS * batch, to_ask, answers)
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer, DataLoader(samples, batch_size=batch, num_workers=1))


if __name__ == "__main__":
    main()
