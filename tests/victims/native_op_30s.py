"""One native operation of 30 s (or as many as are given) in mid-training.

A person sees the loss lines stop with one core busy, always at the same line, and then go on.
"""

from __future__ import annotations

import sys

from knobs import STEPS, lasting
from native_work import decompose, size_lasting
from ordinary import AFTERWARDS, make_loader, make_model, make_optimizer, train

SECONDS = 30.0


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    size = size_lasting(lasting(seconds))
    model = make_model()
    optimizer = make_optimizer(model)
    step = train(model, optimizer, make_loader(STEPS))
    print(f"whitening with a matrix of {size} x {size}", flush=True)
    print(f"took {decompose(size):.1f} s", flush=True)
    train(model, optimizer, make_loader(AFTERWARDS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
