"""A checkpoint of 1 GB goes to a slow target: through a pipe to a child that takes 12 MB a second.

As `torch.save(...)` into `ssh host 'cat > last.pt'`. A person sees the loss lines stop for 90 s
while last.pt grows. The size is divided by the speed, the rate is not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from knobs import SPEED, STEPS
from ordinary import AFTERWARDS, make_loader, make_model, make_optimizer, train
from torch import nn

SLOW_CAT = """
import sys, time
chunk, rate = 65536, 12e6
with open(sys.argv[1], "wb") as target:
    while data := sys.stdin.buffer.read1(chunk):
        target.write(data)
        target.flush()
        time.sleep(len(data) / rate)
"""


def save_slowly(state: dict[str, torch.Tensor], path: Path) -> None:
    command = [sys.executable, "-c", SLOW_CAT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as cat:
        torch.save(state, cat.stdin)


def main() -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    step = train(model, optimizer, make_loader(STEPS))
    table = nn.Embedding(round(250_000 / SPEED), 1000)  # what makes it 1 GB
    path = Path("last.pt")
    save_slowly({**model.state_dict(), **table.state_dict()}, path)
    print(f"saved {path.stat().st_size / 1e6:.0f} MB", flush=True)
    path.unlink()
    train(model, optimizer, make_loader(AFTERWARDS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
