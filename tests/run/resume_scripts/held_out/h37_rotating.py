"""Keeps two generations, tries the newer, then the older; no condition, only exceptions."""
import os
import time

import torch


def restore(model, optimizer):
    for name in ("state.bin", "state.old.bin"):
        try:
            held = torch.load(name, weights_only=True)
            model.load_state_dict(held["m"])
            optimizer.load_state_dict(held["o"])
            return held["i"]
        except (OSError, RuntimeError):
            continue
    return 0


def store(model, optimizer, i):
    torch.save({"m": model.state_dict(), "o": optimizer.state_dict(), "i": i}, "state.new")
    if os.path.exists("state.bin"):
        os.replace("state.bin", "state.old.bin")
    os.replace("state.new", "state.bin")


torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
i = restore(model, optimizer)
while i < 60:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(i))
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    i += 1
    time.sleep(0.05)
    if i % 10 == 0:
        store(model, optimizer, i)
        print(f"{i}/60", flush=True)
torch.save(model.state_dict(), "final.pt")
