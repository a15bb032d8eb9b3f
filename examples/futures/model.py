"""The MLP, where it runs, and how the data is divided in time."""

import statistics
import time
from itertools import pairwise
from pathlib import Path

import torch
from features import FEATURES, LABEL_BARS
from torch import nn


class Standardize(nn.Module):
    """Kept in the model, so that model.pt is all that is needed to use it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("deviation", torch.ones(FEATURES))

    def forward(self, features):
        return (features - self.mean) / self.deviation


def build_model(hidden_layers):
    sizes = [FEATURES, *map(int, hidden_layers.split(","))]
    layers = [Standardize()]
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return Split(*layers, nn.Linear(sizes[-1], 2))


class Split(nn.Sequential):
    """Layers that may stand on two devices: the first half on one, the rest on the other."""

    devices = None

    def place(self, first, second=None):
        self.devices = [
            first if 2 * n < len(self) or not second else second for n in range(len(self))
        ]
        for layer, device in zip(self, self.devices, strict=True):
            layer.to(device)
        return self

    def forward(self, rows):
        for layer, device in zip(self, self.devices or [None] * len(self), strict=True):
            rows = layer(rows if device is None else rows.to(device))
        return rows


@torch.no_grad()
def latency_ms(model, repeats=200):
    """Return the median milliseconds from one row in memory to its answer in memory."""
    times = []
    for _ in range(20 + repeats):  # the first ones warm up
        began = time.perf_counter()
        model(torch.zeros(1, FEATURES)).cpu()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[20:])


def walk_forward(rows, folds, batch_size):
    """Train on the past, validate on what follows: (stop of training, start and stop of it).

    Labels look ahead, so the last rows before the validated ones are left out.
    """
    edges = [rows * number // (folds + 1) for number in range(folds + 2)]
    plan = [
        ((start - LABEL_BARS) // batch_size * batch_size, start, stop)
        for start, stop in pairwise(edges[1:])
    ]
    if plan[0][0] <= 0:
        raise SystemExit("too little data for a batch in the first fold")
    return plan


def spread(args, model, processes):
    """Make the model train on several processes or GPUs, as asked for."""
    if processes > 1:
        return nn.parallel.DistributedDataParallel(model)
    if args.data_parallel and torch.cuda.device_count() > 1:
        return nn.DataParallel(model)  # AMD advises torchrun instead
    return model


def memory_used(args):
    """Return MiB: of this process, of tensors on the GPU, and of what the allocator holds."""
    status = Path("/proc/self/statm")
    pages = int(status.read_text().split()[1]) if status.exists() else 0
    gpu = args.device != "cpu"
    held = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) if gpu else (0, 0)
    return [round(size / 2**20, 1) for size in (pages * 4096, *held)]
