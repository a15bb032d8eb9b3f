"""A translation tutorial: numbered checkpoints, and a helper that continues from the latest."""
import glob
import os
import time

import torch

CHECKPOINT_DIR = "checkpoints"
NUM_EPOCHS = 6


def save_checkpoint(epoch, model, optimizer):
    os.makedirs(CHECKPOINT_DIR, exist_ok=True)
    torch.save(
        {"epoch": epoch, "model": model.state_dict(), "optim": optimizer.state_dict()},
        os.path.join(CHECKPOINT_DIR, f"epoch_{epoch:03d}.pt"),
    )


def load_latest_checkpoint(model, optimizer):
    files = sorted(glob.glob(os.path.join(CHECKPOINT_DIR, "epoch_*.pt")))
    if not files:
        return 0
    state = torch.load(files[-1])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optim"])
    return state["epoch"] + 1


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    start_epoch = load_latest_checkpoint(model, optimizer)
    for epoch in range(start_epoch, NUM_EPOCHS):
        for i in range(10):
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch * 10 + i))
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        print(f"Epoch {epoch + 1}/{NUM_EPOCHS}, loss {loss.item():.4f}", flush=True)
        save_checkpoint(epoch, model, optimizer)
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
