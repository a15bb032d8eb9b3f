"""A small transformer, trained by Loop. It writes down the loss of every step, exactly.

Dropout, AdamW, warm-up, a shuffled loader with two workers and random augmentation: all that makes
a training hard to repeat.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import threading
from pathlib import Path

import rocsteady_train
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, LENGTH, WIDTH = 50, 16, 32


class Sequences(Dataset):
    """Counting up by a step, with some places blotted out at random."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if os.environ.get("JOB_WORKER_DIES") == str(index) and not Path("died").exists():
            Path("died").touch()
            os.kill(os.getpid(), 9)
        start, step = index % WORDS, 1 + index % 3
        words = (start + step * torch.arange(LENGTH + 1)) % WORDS
        blotted = words[:-1].clone()
        blotted[random.randrange(LENGTH)] = 0  # noqa: S311 - not for secrets
        return blotted + (torch.rand(()) < 0.1).long(), words[1:]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.1, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.block(self.words(words) + self.places))


def fingerprint(*states: object) -> str:
    digest = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, torch.Tensor):
            digest.update(bytes(value.detach().contiguous().view(-1).view(torch.uint8).tolist()))
        elif isinstance(value, dict):
            for key in value:
                digest.update(repr(key).encode())
                add(value[key])
        elif isinstance(value, (list, tuple)):
            for item in value:
                add(item)
        else:
            digest.update(repr(value).encode())

    for state in states:
        add(state)
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--samples", type=int, default=800)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save-every", type=float, default=0.2)
    parser.add_argument("--hang-at", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 50))
    loader = DataLoader(
        Sequences(arguments.samples), batch_size=8, shuffle=True, num_workers=arguments.workers
    )
    loop = rocsteady_train.Loop(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        loader=loader,
        epochs=arguments.epochs,
        lose_at_most=arguments.save_every,
    )
    criterion = nn.CrossEntropyLoss()
    with Path("losses").open("a", encoding="ascii") as losses:
        for words, wanted in loop:
            if arguments.hang_at and loop.steps == arguments.hang_at and not Path("hung").exists():
                Path("hung").touch()
                stuck = threading.Lock()
                stuck.acquire()
                stuck.acquire()
            loss = loop.step(
                (words, wanted),
                lambda part: criterion(model(part[0]).flatten(0, 1), part[1].flatten()),
            )
            loop.values["last"] = float(loss)
            losses.write(f"{loop.steps} {float(loss).hex()}\n")
            losses.flush()
    end = {
        "weights": fingerprint(model.state_dict()),
        "optimizer": fingerprint(optimizer.state_dict(), scheduler.state_dict()),
        "steps": loop.steps,
        "last": loop.values["last"],
    }
    Path("end.json").write_text(json.dumps(end), encoding="ascii")
    sys.stdout.write(json.dumps(end) + "\n")


if __name__ == "__main__":
    main()
