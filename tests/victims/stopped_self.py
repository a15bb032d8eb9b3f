"""The trainer is stopped (state T) in mid-training, as a stray SIGSTOP or a job control does.

A person sees the loss lines stop and `T` in ps; `kill -CONT` brings it back. With `--again` it is
stopped a second time. Continued often enough, it ends by itself.
"""

from __future__ import annotations

import os
import signal
import sys

from knobs import STEPS
from ordinary import AFTERWARDS, make_loader, make_model, make_optimizer, train


def stop_here() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def main() -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    step = train(model, optimizer, make_loader(STEPS))
    for _ in range(2 if "--again" in sys.argv else 1):
        stop_here()
        step = train(model, optimizer, make_loader(AFTERWARDS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
