"""A well-behaved run: steady steps, checkpoints, and a way to go on from one.

`steady.py [--steps N] [--every N] [--resume last.pt] [--workers N]`. It ends with the time of its
steps, and with DONE. A person sees loss lines, last.pt and at the end model.pt.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from knobs import STEPS
from ordinary import make_loader, make_model, make_optimizer, train_step


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="an ordinary training run")
    parser.add_argument("--steps", type=int, default=2 * STEPS)
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    parser.add_argument("--workers", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parse()
    model = make_model()
    optimizer = make_optimizer(model)
    first = 0
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
        print(f"resumed at step {first}", flush=True)
    times, before = [], time.perf_counter()
    for step, (x, y) in enumerate(make_loader(args.steps - first, workers=args.workers), first + 1):
        loss = train_step(model, optimizer, x, y)
        times.append(time.perf_counter() - before)
        if step % 10 == 0:
            print(f"step {step}/{args.steps} loss {loss:.4f}", flush=True)
        if step % args.every == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            part = Path("last.pt.part")
            torch.save(state, part)
            part.replace("last.pt")
        before = time.perf_counter()
    torch.save(model.state_dict(), "model.pt")
    if len(times) > 1:
        p10, *_, p90 = statistics.quantiles(times, n=10)
        median = statistics.median(times)
        print(f"step time: median {median * 1e3:.1f} ms, p10 {p10 * 1e3:.1f}, p90 {p90 * 1e3:.1f}")
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
