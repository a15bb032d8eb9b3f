"""A `time.sleep(60)` between epochs, as people write to let a card cool down.

A person sees the loss lines stop for a minute, with no CPU, because the script says so.
"""

from __future__ import annotations

import time

from knobs import STEPS, lasting
from ordinary import make_loader, make_model, make_optimizer, train


def cool_down() -> None:
    time.sleep(lasting(60))


def main() -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    step = train(model, optimizer, make_loader(STEPS))
    cool_down()
    train(model, optimizer, make_loader(STEPS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
