"""A small training script with a bug that people lose days to: a DataLoader worker deadlocks.

Sample 1,700 deadlocks whenever a worker process loads it, and never in the training process itself.
"""

import argparse
import threading
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

CHECKPOINT = Path("checkpoints/last.pt")
lock = threading.Lock()


class Numbers(Dataset):
    def __len__(self):
        return 4_000

    def __getitem__(self, index):
        if index == 1_700 and get_worker_info() is not None:
            with lock, lock:  # a thread that waits for a lock that it holds itself
                pass
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(16, generator=generator)
        return x, x.sum().sin()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    done = 0
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]

    data = torch.utils.data.Subset(Numbers(), range(done * 8, 4_000))
    loader = DataLoader(data, batch_size=8, num_workers=args.workers)
    for step, (x, y) in enumerate(loader, start=done + 1):
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # a larger model
        if step % 100 == 0:
            print(f"step {step}/500  loss {loss.item():.4f}", flush=True)
            CHECKPOINT.parent.mkdir(exist_ok=True)
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                CHECKPOINT.with_suffix(".tmp"),
            )
            CHECKPOINT.with_suffix(".tmp").replace(CHECKPOINT)
    torch.save(model.state_dict(), "model.pt")


main()
