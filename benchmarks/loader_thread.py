"""Throughput with one thread that loads ahead, against two healthy worker processes.

    python benchmarks/loader_thread.py --python PATH-OF-A-PYTHON-WITH-TORCH

The dataset decodes: zlib and numpy, which let other threads run meanwhile. A step takes as long as
loading a batch does. Two kinds of steps: one waits, as for a GPU; one computes on a core of the
same machine. The script asks for two workers; the strategy gives it none and the thread. Both in
turn, each in a process of its own; what is compared is whole epochs after the first, so that the
start of the workers, which stay, is not counted against them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

WANTED = 0.95
BATCH, BATCHES, EPOCHS = 16, 40, 3
SIDE, PAGES_OF_NOISE = 224, 4
SAME_STEP = 64  # products of matrices of which the time is measured


def train(kind: str, step: float, workers: int) -> dict[str, float]:
    """Train in this process, which has torch; give batches a second."""
    import torch  # noqa: PLC0415 - the interpreter that compares does not have it
    from torch.utils.data import DataLoader, Dataset  # noqa: PLC0415

    np: Any = importlib.import_module("numpy")  # nor this
    torch.set_num_threads(1)
    noise = np.random.default_rng(0).integers(0, 32, (PAGES_OF_NOISE, SIDE, SIDE, 3), np.uint8)
    packed = [zlib.compress(page.tobytes(), 6) for page in noise]

    class Decoded(Dataset):  # type: ignore[misc]  # torch has no types here
        def __len__(self) -> int:
            return BATCH * BATCHES

        def __getitem__(self, index: int) -> Any:  # noqa: ANN401
            flat = np.frombuffer(zlib.decompress(packed[index % len(packed)]), np.uint8)
            image = flat.reshape(SIDE, SIDE, 3).astype(np.float32)
            return torch.from_numpy((image - image.mean()) / image.std())

    loader = DataLoader(
        Decoded(), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    matrix = torch.randn(192, 192)

    def compute(products: float) -> None:
        for _ in range(round(products)):
            torch.mm(matrix, matrix)

    if kind == "calibrate":
        begin = time.perf_counter()
        count = sum(1 for _ in loader)
        loading = (time.perf_counter() - begin) / count
        begin = time.perf_counter()
        compute(SAME_STEP)
        return {"loading": loading, "product": (time.perf_counter() - begin) / SAME_STEP}
    begin, count = 0.0, 0
    for epoch in range(EPOCHS):
        if epoch == 1:
            begin = time.perf_counter()
        for _batch in loader:
            (time.sleep if kind == "waits" else compute)(step)
            count += epoch > 0
    return {"rate": count / (time.perf_counter() - begin), "workers": loader.num_workers}


def measure(python: str, added: dict[str, str], *arguments: object) -> dict[str, float]:
    """Run this file in the interpreter that has torch."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [python, __file__, "train", *map(str, arguments)],
        env={**bare, **added},
        stdout=subprocess.PIPE,
        check=True,
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def compare(python: str, added: dict[str, str], pairs: int) -> bool:
    """Print the ratio for each kind of step; true if all are as wanted."""
    from rocsteady.attempts.strategy_environment import environment  # noqa: PLC0415 - not in the other one
    from rocsteady.model import Strategy  # noqa: PLC0415

    thread, _ = environment(Strategy(workers=0, loader_thread=True), {})
    good = True
    for kind in ("waits", "computes"):
        ratios, rates = [], []
        for _ in range(pairs):
            base = measure(python, {}, "calibrate", 0, 0)
            step = base["loading"] if kind == "waits" else base["loading"] / base["product"]
            workers = measure(python, added, kind, step, 2)
            ahead = measure(python, {**added, **thread}, kind, step, 2)
            if (workers["workers"], ahead["workers"]) != (2, 0):
                sys.exit("the strategy was not applied")
            ratios.append(ahead["rate"] / workers["rate"])
            rates.append((base["loading"], workers["rate"], ahead["rate"]))
        loading, with_workers, with_thread = map(statistics.median, zip(*rates, strict=True))
        ratio = statistics.median(ratios)
        good = good and ratio >= WANTED
        print(f"\na step that {kind}, {loading * 1e3:.0f} ms, as long as loading; {pairs} pairs")
        print(f"  two workers {with_workers:.2f} batches/s, one thread {with_thread:.2f}")
        print(f"  ratio: median {ratio:.3f}; at least {WANTED} is wanted")
        print(f"  the pairs: {' '.join(f'{value:.2f}' for value in sorted(ratios))}")
    return good


def main() -> None:
    """Measure, or be measured."""
    if sys.argv[1:2] == ["train"]:
        print(json.dumps(train(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))))
        return
    from rocsteady.attempts.injection import lay_out, runtime_folder  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", required=True, type=Path, help="an interpreter that has torch")
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    folder = runtime_folder(f"benchmark-{os.getpid()}", os.environ)
    try:
        added = lay_out(folder).environment({}, run_id="benchmark", supervisor=os.getpid())
        good = compare(str(arguments.python), added, arguments.pairs)
    finally:
        shutil.rmtree(folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
