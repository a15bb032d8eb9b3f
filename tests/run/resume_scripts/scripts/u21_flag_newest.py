"""--resume is a flag; the script picks the newest of its numbered files and deletes old ones."""
import argparse
import re
import time
from pathlib import Path

import torch

OUT = Path("weights")


def newest():
    found = sorted(OUT.glob("ckpt-*.pt"), key=lambda p: int(re.search(r"(\d+)", p.stem).group(1)))
    return found[-1] if found else None


def save(step, model, opt):
    OUT.mkdir(exist_ok=True)
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, OUT / f"ckpt-{step}.pt")
    for old in sorted(OUT.glob("ckpt-*.pt"), key=lambda p: p.stat().st_mtime)[:-2]:
        old.unlink()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start = 0
    if a.resume and (path := newest()):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        start = state["step"]
    for step in range(start, a.steps):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.05)
        if (step + 1) % 10 == 0:
            print(f"{step + 1} {loss.item():.4f}", flush=True)
            save(step + 1, model, opt)
    torch.save(model.state_dict(), "final.pt")


main()
