"""Starts from the weights that --checkpoint names, but from its own last.pt if there is one."""
import argparse
import os
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint", required=True, help="pretrained weights to fine-tune")
parser.add_argument("--output", default="finetuned")
args = parser.parse_args()
os.makedirs(args.output, exist_ok=True)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
model.load_state_dict(torch.load(args.checkpoint)["model"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
first = 0
last = os.path.join(args.output, "last.pt")
if os.path.isfile(last):
    state = torch.load(last)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
for step in range(first, 60):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.05)
    if step % 10 == 9:
        print(f"step {step + 1}/60 loss {loss.item():.4f}", flush=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, last)
torch.save(model.state_dict(), "final.pt")
