"""A small training job as people write it: attention, a loader with workers, checkpoints, ranks.

``--driver NAME`` makes something below it fail, as a driver or a library would: drivers.py.
"""

import argparse
import atexit
import math
import os
import pathlib
import time

import drivers
import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS, EVERY = 120, 20


class Samples(Dataset):
    """Numbers to learn from; the same for the same index."""

    def __len__(self) -> int:
        return STEPS * 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        drivers.load(index)
        sample = torch.full((8, 32), index % 7 / 7)
        return sample, sample.mean().reshape(1)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 96)
        self.out = nn.Linear(32, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(batch).unflatten(-1, (3, 2, 16)).transpose(1, 3).unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2)).mean(1)


def together(network: nn.Module) -> nn.Module:
    distributed.init_process_group("gloo")
    atexit.register(distributed.destroy_process_group)
    return DistributedDataParallel(network)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", default="")
    parser.add_argument("--resume")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no_checkpoints", action="store_true")
    parser.add_argument("--precision", choices=["fp32", "fp16"], default="fp32")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    drivers.install(arguments.driver)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    first = 0
    if arguments.resume:
        kept = torch.load(arguments.resume, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
    network = torch.compile(model, backend=drivers.compiler) if arguments.compile else model
    first_rank = os.environ.get("RANK", "0") == "0"
    if "RANK" in os.environ:
        network = together(network)
    loader = DataLoader(Samples(), batch_size=4, num_workers=arguments.workers)
    folder = pathlib.Path("checkpoints")
    folder.mkdir(exist_ok=True)
    half = arguments.precision == "fp16"
    for step, (batch, wanted) in enumerate(loader, 1):
        if step <= first:
            continue
        with torch.autocast("cpu", dtype=torch.float16, enabled=half):
            loss = functional.mse_loss(network(batch * drivers.scale(step)).float(), wanted)
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"loss is {loss.item()} at step {step}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        drivers.step(step)
        time.sleep(0.02)
        if step % 10 == 0:
            print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
        if step % EVERY == 0 and first_rank and not arguments.no_checkpoints:
            part = folder / "part"
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, part)
            part.replace(folder / f"step-{step:06}.pt")
    if first_rank:
        torch.save(model.state_dict(), "model.pt")
        print("DONE", flush=True)


if __name__ == "__main__":
    main()
