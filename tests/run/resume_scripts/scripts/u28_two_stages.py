"""Pretrains, then fine-tunes; each stage has its own file and knows when it is done."""
import os
import time

import torch

STAGES = [("pretrain", 30, 1e-2), ("finetune", 30, 1e-3)]


def run_stage(name, steps, lr, model, offset):
    path = f"work/{name}.pt"
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    done = 0
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
        print(f"{name}: continuing at step {done}")
    for step in range(done, steps):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(offset + step))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if (step + 1) % 10 == 0:
            print(f"{name} step {step + 1}/{steps}: {loss.item():.4f}", flush=True)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, path)


def main():
    os.makedirs("work", exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    for number, (name, steps, lr) in enumerate(STAGES):
        run_stage(name, steps, lr, model, number * 1000)
    torch.save(model.state_dict(), "final.pt")


main()
