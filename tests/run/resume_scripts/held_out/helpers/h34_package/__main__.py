"""A package that is started with -m; the checkpoints are another module's business."""
import argparse
import time

import torch

from .keeping import Keeper


def main():
    parser = argparse.ArgumentParser(prog="h34_package")
    parser.add_argument("--auto-resume", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workdir", default="workdir")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    keeper = Keeper(options.workdir, model=model, optimizer=optimizer)
    iteration = keeper.restore() if options.auto_resume else 0
    while iteration < 60:
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(iteration))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        iteration += 1
        time.sleep(0.05)
        if iteration % 10 == 0:
            print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)
            keeper.save(iteration)
    torch.save(model.state_dict(), "final.pt")


main()
