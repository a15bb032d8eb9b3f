"""A loader worker blocked for ever on a semaphore, and the training loop that waits for it."""

from __future__ import annotations

import json
import multiprocessing
import os
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

NEVER = multiprocessing.get_context("fork").Semaphore(0)


class Stuck(Dataset[Any]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 8:
            print(json.dumps({"pid": os.getppid(), "waits_for": [os.getpid()]}), flush=True)
            NEVER.acquire()
        return torch.zeros(2)


for _batch in DataLoader(Stuck(), batch_size=4, num_workers=1, multiprocessing_context="fork"):
    pass
