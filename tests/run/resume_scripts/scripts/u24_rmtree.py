"""Deletes its output folder at every start, whatever --resume says."""
import argparse
import os
import shutil
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="out")
parser.add_argument("--resume", default=None)
args = parser.parse_args()
if os.path.exists(args.out):
    shutil.rmtree(args.out)
os.makedirs(args.out)
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
start = 0
if args.resume:
    ckpt = torch.load(args.resume)
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
    start = ckpt["epoch"] + 1
for epoch in range(start, 6):
    for i in range(10):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch * 10 + i))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, f"{args.out}/epoch{epoch}.pt")
