"""Arguments are those of a function; the log is written anew at each start."""
import os
import time

import fire
import torch


def train(steps=60, lr=0.01, out="runs/a", init=None):
    """init: a checkpoint of an earlier run to go on with"""
    os.makedirs(out, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    step = 0
    if init is not None:
        earlier = torch.load(init)
        model.load_state_dict(earlier["model"])
        optimizer.load_state_dict(earlier["optimizer"])
        step = earlier["step"]
    with open(os.path.join(out, "log.tsv"), "w") as log:
        while step < steps:
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            time.sleep(0.05)
            print(step, loss.item(), sep="\t", file=log, flush=True)
            if step % 10 == 0:
                print(f"step {step}", flush=True)
                torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step), f"{out}/s{step}.pt")
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    fire.Fire(train)
