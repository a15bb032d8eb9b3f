"""Two ranks, and one of them never comes to the all_reduce: it takes its own lock twice.

Run by torchrun. A person sees the loss lines of both ranks stop; rank 0 is in all_reduce and would
be there for 30 minutes, and nothing says that rank 1 is to blame.
"""

from __future__ import annotations

import threading

import torch
import torch.distributed as dist
from knobs import STEPS
from ordinary import WIDTH, find_batch_size, loss_of, make_model, make_optimizer


class Metrics:
    """Losses, kept under a lock and written in tens."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.losses: list[float] = []

    def add(self, loss: float, *, flush: bool) -> None:
        with self.lock:
            self.losses.append(loss)
            if flush:
                self.flush_metrics()

    def flush_metrics(self) -> None:
        with self.lock:  # the mistake: add() holds it already
            self.losses.clear()


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    batch, metrics = find_batch_size(), Metrics()
    model = make_model()
    optimizer = make_optimizer(model)
    for step in range(2 * STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, torch.randn(batch, WIDTH), torch.zeros(batch, dtype=torch.long))
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        metrics.add(loss.item(), flush=rank == 1 and step == STEPS - 1)
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
