"""Roll back after a bad loss: the rest is trained as if that batch had never been there."""

from __future__ import annotations

import hashlib
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import rocsteady_train
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
SAMPLES, BATCH, EPOCHS = 80, 4, 2


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.drop = torch.nn.Dropout()
        self.last = torch.nn.Linear(8, 1)

    def forward(self, batch: Any) -> Any:
        return self.last(self.drop(self.first(batch)))


def loss_of(model: Any, times: int, batch: Any) -> Any:
    return model(batch).square().mean() * times


def train(folder: Path, spoil: str, **settings: Any) -> dict[str, Any]:
    torch.manual_seed(3)
    data = torch.rand(SAMPLES, 4)
    if spoil == "sample":  # each epoch has one batch with it
        data[17] = float("nan")
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loop = rocsteady_train.Loop(
        model=model,
        optimizer=optimizer,
        loader=DataLoader(TensorDataset(data), BATCH, shuffle=True),
        epochs=EPOCHS,
        checkpoints=folder,
        lose_at_most=0.0 if spoil == "weights" else 600.0,  # after each step, or only at the start
        roll_back=rocsteady_train.RollBack(**settings) if settings else None,
    )
    seen: list[list[float]] = []
    left_out: list[float] = []
    spoilt = False
    for (batch,) in loop:
        leaps = spoil == "leap" and loop.steps == 30 and not spoilt
        compute = partial(loss_of, model, 1000 if leaps else 1)
        loss = loop.step(batch, compute)
        spoilt = spoilt or leaps
        if bool(torch.isfinite(loss)) and not leaps:
            seen.append([loop.steps, float(loss)])
        else:
            left_out.append(float(batch[0, 0]))
        if spoil == "weights" and loop.steps == 12 and not spoilt:
            spoilt = True
            with torch.no_grad():  # a checkpoint that must not be gone back to
                model.first.weight[0, 0] = float("inf")
    weights = torch.cat([each.flatten() for each in model.parameters()]).detach()
    evidence = folder / "bad-losses" / "steps.jsonl"
    return {
        "steps": loop.steps,
        "finite": bool(torch.isfinite(weights).all()),
        "digest": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
        "lr": optimizer.param_groups[0]["lr"],
        "trained": seen,
        "left_out": len(left_out),
        "evidence": [json.loads(line) for line in evidence.read_text().splitlines()]
        if evidence.exists()
        else [],
        "kept": sorted(path.name for path in (folder / "bad-losses").glob("*.safetensors")),
    }


if __name__ == "__main__":
    folder, spoil, settings = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    print(json.dumps(train(folder, spoil, **settings)))
