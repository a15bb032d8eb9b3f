"""One native operation of a wanted length, for the victims that need one."""

from __future__ import annotations

import time

import torch


def decompose(size: int) -> float:
    """Run one LAPACK call, and give the seconds it took."""
    matrix = torch.rand(size, size)
    began = time.perf_counter()
    torch.linalg.svd(matrix)
    return time.perf_counter() - began


def size_lasting(seconds: float) -> int:
    """Give the size of matrix with which the call takes about this long, on this machine."""
    decompose(100)
    size = 300
    while (took := decompose(size)) < seconds / 30:
        size = min(2 * size, round(size * (seconds / took) ** (1 / 3)))
    return int(size * (seconds / took) ** (1 / 3))
