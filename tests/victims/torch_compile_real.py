"""torch.compile of a real, small model, with an empty cache; and again when the shape changes.

A person sees the first step take most of a minute, with compile workers and g++ in top, then fast
steps, then another pause when the last batch of the epoch is smaller.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CACHE = Path("inductor-cache").absolute()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(CACHE)  # so that it is empty each time

import torch  # noqa: E402
from knobs import SPEED  # noqa: E402
from ordinary import train  # noqa: E402
from torch import nn  # noqa: E402

LAYERS = 4 if SPEED == 1 else 1


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean(1))


def main() -> None:
    sizes = [32] * 60 + [20] * 20  # the second is a new shape
    batches = [(torch.randn(n, 16, 64), torch.randint(10, (n,))) for n in sizes]
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    train(torch.compile(model), optimizer, batches)
    shutil.rmtree(CACHE)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
