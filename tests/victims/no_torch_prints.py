"""No torch at all: a logistic regression by hand that prints a line every few seconds, for 90 s.

A person sees the lines come. There are no steps to be seen by a hook.
"""

from __future__ import annotations

import math
import random
import time

from knobs import lasting

EPOCHS = 30


def train_epoch(weights: list[float], seconds: float) -> float:
    until, loss = time.monotonic() + seconds, 0.0
    while time.monotonic() < until:
        x = [random.gauss(0, 1) for _ in weights]
        y = x[0] > 0
        p = 1 / (1 + math.exp(-sum(w * a for w, a in zip(weights, x, strict=True))))
        loss = -math.log(max(1e-9, p if y else 1 - p))
        for i, a in enumerate(x):
            weights[i] += 0.01 * (y - p) * a
    return loss


def main() -> None:
    weights = [0.0] * 64
    for epoch in range(1, EPOCHS + 1):
        loss = train_epoch(weights, lasting(90) / EPOCHS)
        print(f"epoch {epoch}/{EPOCHS} loss {loss:.4f}", flush=True)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
