"""A Python loop whose condition can never come true: classes that cannot be balanced.

A person sees the loss lines stop and one core busy. From outside it is the same as long work.
"""

from __future__ import annotations

import random

from knobs import STEPS
from ordinary import make_loader, make_model, make_optimizer, train


def balance_classes(labels: list[int]) -> list[int]:
    while labels.count(0) != labels.count(1):  # the mistake: their number is odd
        place = random.randrange(len(labels))
        labels[place] = 1 - labels[place]
    return labels


def main() -> None:
    model = make_model()
    train(model, make_optimizer(model), make_loader(STEPS))
    balance_classes([0] * 100 + [1] * 101)


if __name__ == "__main__":
    main()
