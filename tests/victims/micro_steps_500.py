"""500 micro-steps of 20 ms between two optimizer steps: a large batch on a small card.

A person sees a line every 10 s. With `--no-loader` the batches are tensors in memory, so that not
even a DataLoader gives a sign in between. The number of micro-steps is divided by the speed.
"""

from __future__ import annotations

import itertools
import sys

import torch
from knobs import SPEED
from ordinary import WIDTH, find_batch_size, loss_of, make_loader, make_model, make_optimizer

OPTIMIZER_STEPS = 6
MICRO_STEPS = max(2, round(500 / SPEED))


def main() -> None:
    if "--no-loader" in sys.argv:
        batch = find_batch_size()
        one = (torch.randn(batch, WIDTH), torch.zeros(batch, dtype=torch.long))
        batches = itertools.repeat(one, OPTIMIZER_STEPS * MICRO_STEPS)
    else:
        batches = make_loader(OPTIMIZER_STEPS * MICRO_STEPS)
    model = make_model()
    optimizer = make_optimizer(model)
    for micro_step, (x, y) in enumerate(batches, 1):
        loss = loss_of(model, x, y) / MICRO_STEPS
        loss.backward()
        if micro_step % MICRO_STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {micro_step // MICRO_STEPS} loss {loss.item():.6f}", flush=True)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
