"""Steps grow from 20 ms to 4 s over 300 steps, as sequences do in a curriculum.

About four minutes in all. A person sees the run get slower and slower, but never stop.
"""

from __future__ import annotations

import torch
from knobs import STEP_SECONDS, lasting
from ordinary import WIDTH, find_batch_size, make_model, make_optimizer, train_step

STEPS = 300
LONGEST = 4.0


def main() -> None:
    batch = find_batch_size()
    model = make_model()
    optimizer = make_optimizer(model)
    growth = max(1.0, lasting(LONGEST) / STEP_SECONDS) ** (1 / (STEPS - 1))
    for step in range(STEPS):
        rows = round(batch * growth**step)
        x, y = torch.randn(rows, WIDTH), torch.zeros(rows, dtype=torch.long)
        loss = train_step(model, optimizer, x, y)
        if step % 10 == 0:
            print(f"step {step} rows {rows} loss {loss:.4f}", flush=True)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
