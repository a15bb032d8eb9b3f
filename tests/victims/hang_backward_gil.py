"""Backward enters C code that takes a lock twice, with the GIL held: as a broken extension does.

A person sees the loss lines stop. The process uses no CPU, ^C does nothing, and no other Python
thread of it runs: not the bar, not the heartbeat of a tracker.
"""

from __future__ import annotations

import ctypes

import torch
from knobs import STEPS
from ordinary import WIDTH, find_batch_size, make_model, make_optimizer, train_step
from torch import nn
from torch.autograd.function import FunctionCtx

LIBC = ctypes.PyDLL(None)  # PyDLL keeps the GIL during a call, as an extension module does
MUTEX = ctypes.create_string_buffer(64)  # zeros are a valid pthread mutex, not recursive


class Fused(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return fused_backward(x, grad)


def fused_backward(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    Fused.calls += 1
    LIBC.pthread_mutex_lock(MUTEX)
    if Fused.calls <= STEPS:  # after that the early return of the C code forgets to unlock
        LIBC.pthread_mutex_unlock(MUTEX)
    return grad * (x > 0)


class Activation(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Fused.apply(x)


def main() -> None:
    batch = find_batch_size()
    model = nn.Sequential(make_model(), Activation(), nn.Linear(10, 10))
    optimizer = make_optimizer(model)
    for step in range(2 * STEPS):
        x, y = torch.randn(batch, WIDTH), torch.zeros(batch, dtype=torch.long)
        loss = train_step(model, optimizer, x, y)
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
