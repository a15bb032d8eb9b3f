"""A training that measures its own parts by its own clock, and prints them as JSON.

It knows nothing of phases or hooks: it adds up what passes around its own calls. Its one argument
says how long each part takes, in milliseconds, and how the loop is made.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.data import DataLoader, Dataset

spec = json.loads(sys.argv[1])
spent: dict[str, float] = defaultdict(float)


@contextmanager
def measured(part: str) -> Iterator[None]:
    before = time.perf_counter()
    yield
    spent[part] += time.perf_counter() - before


def work(milliseconds: float) -> None:
    time.sleep(milliseconds / 1000)


class Rows(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return int(spec["batches"]) * 4

    def __getitem__(self, index: int) -> torch.Tensor:
        work(spec["data"] / 4)
        return torch.randn(8)


class SlowBackward(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(_ctx: object, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(_ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        work(spec["backward"])
        return gradient


class SlowSGD(torch.optim.SGD):  # type: ignore[misc]
    def step(self, closure: None = None) -> None:
        work(spec["optimizer"])
        super().step(closure)


def batches() -> Iterator[torch.Tensor]:
    with measured("data"):
        found = iter(DataLoader(Rows(), batch_size=4, num_workers=spec["workers"]))
    while True:
        with measured("data"):
            batch = next(found, None)
        if batch is None:
            return
        yield batch


model = torch.nn.Linear(8, 1)
optimizer = SlowSGD(model.parameters(), lr=1e-3)
for _ in range(spec["epochs"]):
    model.train()
    for number, batch in enumerate(batches(), 1):
        with measured("compute"):
            work(spec["forward"])
            loss = SlowBackward.apply(model(batch)).mean()
        with measured("backward"):
            loss.backward()
        if number % spec["accumulate"] == 0:
            with measured("optimizer"):
                optimizer.step()
        with measured("compute"):
            optimizer.zero_grad()
            work(spec["own"])
    if spec["validate"]:
        model.eval()
        with torch.no_grad():
            for batch in batches():
                with measured("evaluate"):
                    work(spec["validate"])
                    model(batch)
print(json.dumps(spent))
