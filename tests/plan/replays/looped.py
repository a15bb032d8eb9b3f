"""The futures job with rocsteady_train.Loop: no more than 16 samples fit on the GPU at a time."""

import time

import rocsteady_train
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FITS = 16
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(54, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters())
rows = TensorDataset(torch.randn(6400, 54), torch.randint(2, (6400,)))
loader = DataLoader(rows, batch_size=64, shuffle=True)


def loss(part: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Run out of memory as a GPU does, if the part is too large."""
    if len(part[0]) > FITS:
        raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 256.00 MiB.")
    return nn.functional.cross_entropy(model(part[0]), part[1])


loop = rocsteady_train.Loop(model=model, optimizer=optimizer, loader=loader, epochs=9999)
for batch in loop:
    loop.step(batch, loss, reduction="mean")
    time.sleep(0.01)
