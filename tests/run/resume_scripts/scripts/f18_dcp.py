"""torch.distributed.checkpoint (the real one): folders with .metadata, and a flag to continue from the last."""
import argparse
import os
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp

warnings.filterwarnings("ignore")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    start = 0
    if args.resume:
        last = max((d for d in os.listdir("dcp") if os.path.exists(f"dcp/{d}/.metadata")), key=lambda d: int(d.split("_")[1]))
        x = torch.zeros(1, 4)
        model(x).sum().backward()
        optimizer.step()  # so that there is state to load into
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=f"dcp/{last}", no_dist=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, 60):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if (step + 1) % 10 == 0:
            print(f"step {step + 1}: {loss.item():.4f}", flush=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            dcp.save(state, checkpoint_id=f"dcp/step_{step + 1}", no_dist=True)
    torch.save(model.state_dict(), "final.pt")


main()
