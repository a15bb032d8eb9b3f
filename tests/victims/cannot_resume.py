"""Writes a checkpoint every few steps and cannot go on from one: each run begins at step 0.

`cannot_resume.py [--crash-at N] [--every N]`. Each run writes over the files of the one before,
as such scripts do, and then crashes if asked to. A person loses what they had.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from knobs import STEPS
from ordinary import make_loader, make_model, make_optimizer, train_step


def main() -> None:
    parser = argparse.ArgumentParser(description="a training run that cannot resume")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--crash-at", type=int, default=0)
    args = parser.parse_args()
    folder = Path("checkpoints")
    folder.mkdir(exist_ok=True)
    model = make_model()
    optimizer = make_optimizer(model)
    for step, (x, y) in enumerate(make_loader(args.steps), 1):
        loss = train_step(model, optimizer, x, y)
        if step % args.every == 0:
            path = folder / f"step-{step:06d}.pt"
            torch.save({"step": step, "process": os.getpid(), "model": model.state_dict()}, path)
            print(f"step {step} loss {loss:.4f}: {path}", flush=True)
        if step == args.crash_at:
            raise RuntimeError("an illegal memory access was encountered")
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
