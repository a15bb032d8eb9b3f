"""Writes last.pt, then best.pt when it is better: the newest file is often the wrong one."""
import argparse
import time
from pathlib import Path

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save-dir", type=Path, default=Path("exp/checkpoints"))
    parser.add_argument("--resume-from", type=Path)
    args = parser.parse_args()
    args.save_dir.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    epoch, best = 0, float("inf")
    best_state = None
    if args.resume_from is not None:
        state = torch.load(args.resume_from, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        epoch, best = state["epoch"], state["best"]
    while epoch < 6:
        for i in range(10):
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch * 10 + i))
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        epoch += 1
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "best": best}
        torch.save(state, args.save_dir / "last.pt")
        if best_state is None:
            best_state = state
        torch.save({**best_state, "epoch": 1}, args.save_dir / "best.pt")
        print(f"epoch {epoch}/6 loss {loss.item():.4f}", flush=True)
    torch.save(model.state_dict(), "final.pt")


main()
