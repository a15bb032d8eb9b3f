"""A layer makes itself ready in the first step: `first_step.py KIND`.

A person sees "training starts", and then for a minute or two:

- `lock`: nothing, for ever: no step, no CPU, no file. The kernel is built under a lock, and the
  build takes that lock again.
- `compiler`: cc1 at 100 % in top. A compiler runs as a child for each kernel, as hipcc does.
- `files`: a file under cache/ that grows. A thread of the same process fills a kernel cache, and
  the training thread waits for it: no child, next to no CPU.
- `in-process`: one core busy, in one native call, as MIOpen's in-process compiler does: no child,
  no file, no line; the Python stack stays the same, and only the native frames change.
- `tuning`: a counter that goes up. 40 candidates are tried, each one native call at the same line.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from knobs import lasting
from ordinary import decompose, make_loader, make_model, make_optimizer, size_lasting, train
from torch import nn

BUILD_LOCK = threading.Lock()
CANDIDATES = 40
POOL = ThreadPoolExecutor(1)
KERNEL = "\n".join(
    f"float kernel{n}(float *a, float *b) {{ float s = {n};"
    f" for (int i = 0; i < 4096; i++)"
    f" for (int j = 0; j < {n + 3}; j++) s += a[i * {n + 1} + j] * b[j];"
    " return s; }"
    for n in range(60)
)


def build_under_lock() -> None:
    with BUILD_LOCK:
        build_kernel()


def build_kernel() -> None:
    with BUILD_LOCK:  # the mistake: the caller holds it already
        pass


def compile_kernels() -> None:
    until = time.monotonic() + lasting(90)
    command = ["gcc", "-x", "c", "-O3", "-march=native", "-S", "-o", "-", "-"]
    while time.monotonic() < until:
        subprocess.run(command, input=KERNEL, text=True, check=True, stdout=subprocess.DEVNULL)


def search_in_thread() -> None:
    POOL.submit(fill_cache, Path("cache")).result()


def fill_cache(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    until = time.monotonic() + lasting(90)
    with (folder / "gfx1100.ufdb.txt").open("wb") as cache:
        while time.monotonic() < until:
            cache.write(os.urandom(8192))
            cache.flush()
            time.sleep(0.5)  # the device times a candidate


def many_passes(rounds: int) -> torch.Tensor:
    x = torch.eye(160)
    for _ in range(rounds):
        x = x + torch.rand(160, 160)
        x = x / torch.linalg.svdvals(x)[0]
        x = x + torch.sort(x.flatten())[0].reshape(160, 160)
        x = torch.fft.fft2(x).real.softmax(0)
        x = x @ x.cumsum(1).cos()
    return x


def compile_in_process() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is old, and still in use
    passes = torch.jit.script(many_passes)
    passes(20)
    began = time.perf_counter()
    passes(50)
    passes(round(50 * lasting(120) / (time.perf_counter() - began)))


def tune() -> None:
    size = size_lasting(lasting(100 / CANDIDATES))
    for candidate in range(1, CANDIDATES + 1):
        print(f"tuning {candidate}/{CANDIDATES}: {decompose(size):.3f} s", flush=True)


KINDS = {
    "lock": build_under_lock,
    "compiler": compile_kernels,
    "files": search_in_thread,
    "in-process": compile_in_process,
    "tuning": tune,
}


class Lazy(nn.Module):
    """A layer that makes itself ready when it is first needed."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.is_ready = kind, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.is_ready:
            KINDS[self.kind]()
            self.is_ready = True
        return x


def main() -> None:
    model = nn.Sequential(make_model(), Lazy(sys.argv[1]))
    loader = make_loader()
    print("training starts", flush=True)
    train(model, make_optimizer(model), loader)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
