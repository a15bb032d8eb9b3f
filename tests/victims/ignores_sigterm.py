"""Takes no notice of SIGTERM, SIGINT and SIGHUP, and trains on: as with a bad handler.

A person presses ^C, then kills it politely, and sees the loss lines go on. Only SIGKILL ends it
before its 1500 steps are over.
"""

from __future__ import annotations

import signal

from knobs import STEPS
from ordinary import make_loader, make_model, make_optimizer, train


def take_no_notice(number: int, _frame: object) -> None:
    print(f"took no notice of {signal.Signals(number).name}", flush=True)


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, take_no_notice)
    model = make_model()
    train(model, make_optimizer(model), make_loader(10 * STEPS))
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
