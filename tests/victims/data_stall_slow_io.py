"""The data stall for 45 s: a loader worker reads a shard that trickles in, as from a slow store.

The shard comes through `aws s3 cp ... -` or the like, here a child of the worker that gives 16 kB
a second. A person sees the loss lines stop and, with care, bytes that still come.
"""

from __future__ import annotations

import subprocess
import sys

import torch
from knobs import STEPS, lasting
from ordinary import AFTERWARDS, Samples, find_batch_size, make_model, make_optimizer, train
from torch.utils.data import DataLoader

SLOW_STORE = """
import sys, time
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    sys.stdout.buffer.write(bytes(16384))
    sys.stdout.buffer.flush()
    time.sleep(1)
"""


class Remote(Samples):
    """Samples of which one shard is not yet on this disk."""

    def __init__(self, count: int, missing: int) -> None:
        super().__init__(count)
        self.missing = missing

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == self.missing:
            self.read_shard()
        return super().__getitem__(index)

    def read_shard(self) -> bytes:
        command = [sys.executable, "-c", SLOW_STORE, str(lasting(45))]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as store:
            assert store.stdout
            return store.stdout.read()


def main() -> None:
    batch = find_batch_size()
    samples = Remote((STEPS + AFTERWARDS) * batch, missing=STEPS * batch)
    model = make_model()
    train(model, make_optimizer(model), DataLoader(samples, batch_size=batch, num_workers=1))
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
