"""A metric in pure Python, 40 s after an epoch: edit distances, as for speech or captions.

A person sees the loss lines stop with one core busy, in Python code without any torch in it.
"""

from __future__ import annotations

import random
import time

from knobs import STEPS, lasting
from ordinary import AFTERWARDS, make_loader, make_model, make_optimizer, train


def edit_distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def word_error_rate() -> float:
    errors = letters = 0
    until = time.monotonic() + lasting(40)
    while time.monotonic() < until:
        said, heard = ("".join(random.choices("abcdefgh ", k=200)) for _ in range(2))
        errors += edit_distance(said, heard)
        letters += len(said)
    return errors / letters


def main() -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    step = train(model, optimizer, make_loader(STEPS))
    print(f"error rate {word_error_rate():.3f}", flush=True)
    train(model, optimizer, make_loader(AFTERWARDS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
