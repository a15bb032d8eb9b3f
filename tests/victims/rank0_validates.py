"""Rank 0 validates for 90 s while rank 1 waits for it in a barrier. Run by torchrun.

A person sees the loss lines of both stop; rank 1 looks exactly like the victim of a hang.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from knobs import STEPS, lasting
from ordinary import AFTERWARDS, WIDTH, find_batch_size, loss_of, make_model, make_optimizer
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def validate(model: nn.Module) -> None:
    x = torch.randn(256, WIDTH)
    until = time.monotonic() + lasting(90)
    while time.monotonic() < until:
        model(x)


def main() -> None:
    dist.init_process_group("gloo")
    rank, batch = dist.get_rank(), find_batch_size()
    plain = make_model()
    model = DistributedDataParallel(plain)
    optimizer = make_optimizer(model)
    for step in range(1, STEPS + AFTERWARDS + 1):
        optimizer.zero_grad()
        loss = loss_of(model, torch.randn(batch, WIDTH), torch.zeros(batch, dtype=torch.long))
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
        if step == STEPS:
            if rank == 0:
                validate(plain)
            dist.barrier()
    dist.destroy_process_group()
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
