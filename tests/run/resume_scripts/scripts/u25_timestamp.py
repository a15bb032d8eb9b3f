"""Writes into a folder named by the time of the start; --ckpt names what to continue from."""
import argparse
import time
from datetime import datetime
from pathlib import Path

import torch


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--ckpt", type=Path, default=None, help="continue from this file")
    p.add_argument("--steps", type=int, default=60)
    return p.parse_args()


def load(path, model, optimizer):
    blob = torch.load(path)
    model.load_state_dict(blob["model"])
    optimizer.load_state_dict(blob["optimizer"])
    return blob["step"]


def main():
    args = parse()
    run_dir = Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
    run_dir.mkdir(parents=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = load(args.ckpt, model, optimizer) if args.ckpt else 0
    while step < args.steps:
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(0.05)
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                       run_dir / f"step_{step:06d}.pt")
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
