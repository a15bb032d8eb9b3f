"""Something happens between two steps: `mid_training.py KIND [SECONDS]`.

A person sees the loss lines stop, and:

- `python-loop`: one core busy, for ever: classes that cannot be balanced. From outside it is the
  same as long work.
- `native-loop`: one core busy, always at the same line: a regular expression backtracks for ever
  in C. From outside it is the same as one long native operation.
- `native`: the same for some seconds, then more steps.
- `validation`: one core busy for a minute, over tensors in memory: no loader, no line; then an
  accuracy, and more steps.
- `breakpoint`: the debugger's prompt, for as long as it takes somebody to type `c`.
- `stop`, `stop-twice`: `T` in ps, as after a stray SIGSTOP; `kill -CONT` brings it back.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time

import torch
from knobs import STEPS, lasting
from ordinary import (
    AFTERWARDS,
    WIDTH,
    decompose,
    make_loader,
    make_model,
    make_optimizer,
    size_lasting,
    train,
)
from torch import nn

WORDS = re.compile(r"(\w+\s*)+\.$")  # the mistake: 2 to the power of the length ways to match


def balance_classes(labels: list[int]) -> None:
    while labels.count(0) != labels.count(1):  # the mistake: their number is odd
        place = random.randrange(len(labels))
        labels[place] = 1 - labels[place]


def clean_caption(caption: str) -> str:
    return caption if WORDS.match(caption) else ""


@torch.no_grad()
def validate(model: nn.Module) -> float:
    model.eval()
    x, y = torch.randn(256, WIDTH), torch.randint(10, (256,))
    right = seen = 0
    until = time.monotonic() + lasting(60)
    while time.monotonic() < until:
        right += int((model(x).argmax(1) == y).sum())
        seen += len(y)
    model.train()
    return right / seen


def look_around(step: int) -> int:
    breakpoint()  # noqa: T100 (what this is about)
    return step


def stop_here() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def main() -> None:
    kind = sys.argv[1]
    size = size_lasting(lasting(float(sys.argv[2]))) if kind == "native" else 0
    model = make_model()
    optimizer = make_optimizer(model)
    step = train(model, optimizer, make_loader(STEPS))
    if kind == "python-loop":
        balance_classes([0] * 100 + [1] * 101)
    elif kind == "native-loop":
        clean_caption("a" * 80 + "!")
    elif kind == "native":
        print(f"whitening with a matrix of {size} x {size}", flush=True)
        print(f"took {decompose(size):.1f} s", flush=True)
    elif kind == "validation":
        print(f"accuracy {validate(model):.3f}", flush=True)
    elif kind == "breakpoint":
        step = look_around(step)
    else:
        stop_here()
        if kind == "stop-twice":
            step = train(model, optimizer, make_loader(AFTERWARDS), step)
            stop_here()
    train(model, optimizer, make_loader(AFTERWARDS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
