"""A training that measures its own parts by its own clock, and prints them as JSON.

It knows nothing of phases or hooks: it adds up what passes around its own calls. Its one argument
says how long each part takes, in milliseconds, and how the loop is made. With ``layers``, forward,
backward and optimizer are torch's own work and take what they take; else all of it is waiting.
Where TRUTH names a file, what was measured so far is added there, a line each time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

spec = json.loads(sys.argv[1])
spent: dict[str, float] = defaultdict(float)
truth = os.environ.get("TRUTH", "")
told = 0.0


@contextmanager
def measured(part: str) -> Iterator[None]:
    before = time.perf_counter()
    yield
    spent[part] += time.perf_counter() - before


def work(milliseconds: float) -> None:
    time.sleep(milliseconds / 1000)


def think(milliseconds: float) -> None:
    """Do what the script's own Python does: it computes, and no library is asked."""
    until = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < until:
        sum(number * number for number in range(50))


def tell() -> None:
    global told  # noqa: PLW0603 - one script, one clock
    if truth and time.perf_counter() - told > 0.2:
        with Path(truth).open("a", encoding="utf-8") as file:
            file.write(json.dumps([time.perf_counter(), spent]) + "\n")
        told = time.perf_counter()


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


layers, own_work = spec.get("layers", 0), work
model: torch.nn.Module = torch.nn.Linear(8, 1)
optimizer: torch.optim.Optimizer = SlowSGD(model.parameters(), lr=1e-3)
if layers:
    torch.set_num_threads(1)
    inner = [torch.nn.Linear(spec["width"], spec["width"]) for _ in range(layers)]
    model = torch.nn.Sequential(torch.nn.Linear(8, spec["width"]), *inner)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
    own_work = think
for _ in range(spec["epochs"]):
    model.train()
    for number, batch in enumerate(batches(), 1):
        with measured("compute"):
            if layers:
                loss = model(batch.repeat(spec["rows"], 1)).mean()
            else:
                work(spec["forward"])
                loss = SlowBackward.apply(model(batch)).mean()
        with measured("backward"):
            loss.backward()
        if number % spec["accumulate"] == 0:
            with measured("optimizer"):
                optimizer.step()
        with measured("compute"):
            optimizer.zero_grad()
            tell()
        with measured("own"):
            own_work(spec["own"])
    if spec["validate"]:
        model.eval()
        with torch.no_grad():
            for batch in batches():
                with measured("evaluate"):
                    work(spec["validate"])
                    model(batch)
print(json.dumps(spent))
