"""From a killed or hung rank to the next first step, interleaved: two ranks, gloo, CPU.

    python benchmarks/ranks.py TORCH_PYTHON FOLDER 20

TORCH_PYTHON is an interpreter with torch and rocsteady. Compares torchrun as it is (static), as
--standalone sets it up, with a store for each generation, and with rocsteady's watcher. Success is
one restart within 30 s. torchrun finds no hang, so only rocsteady gets one, after the kill.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "victims"))
from rank_faults import Torchrun, inject

STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
VARIANTS = {
    "torchrun, static": {"PET_RDZV_BACKEND": "static"},
    "torchrun, standalone": {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "localhost:0"},
    "torchrun, own store": {
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "localhost:0",
        STORE: "1",
    },
    "rocsteady": {"PET_RDZV_BACKEND": "rocsteady"},
}
HANG = "rocsteady, a hang"
WITHIN = 30.0  # seconds
SETTLE = 2.0  # seconds of steps before the kill, so that there is a checkpoint


def once(
    python: str, folder: Path, variables: dict[str, str], kinds: tuple[str, ...]
) -> list[float | None]:
    """Inject faults; return the seconds to each next first step, None without a clean restart."""
    torchrun = Torchrun(python, folder, 10_000, **variables)
    try:
        if not torchrun.until(lambda: torchrun.generations() == 1):
            raise SystemExit(torchrun.said())
        seconds: list[float | None] = []
        for kind in kinds:
            time.sleep(SETTLE)
            fault = inject(torchrun, kind, 1, WITHIN)
            seconds.append(fault.seconds if fault.recovered else None)
        return seconds
    finally:
        torchrun.close()


def main() -> None:
    """Kill, and print what came of it."""
    python, folder, repeats = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    seconds: dict[str, list[float | None]] = {name: [] for name in (*VARIANTS, HANG)}
    for repeat in range(repeats):
        names = list(VARIANTS)
        for name in names if repeat % 2 else names[::-1]:
            place = folder / f"{repeat}-{names.index(name)}"
            faults = {name: "kill", **({HANG: "backward"} if name == "rocsteady" else {})}
            results = once(python, place, VARIANTS[name], tuple(faults.values()))
            for row, result in zip(faults, results, strict=True):
                seconds[row].append(result)
                print(f"{repeat:3} {row:20} {result}", flush=True)
    for name, each in seconds.items():
        clean = [value for value in each if value is not None]
        spread = f"({min(clean):.2f} to {max(clean):.2f})" if clean else ""
        median = f"median {statistics.median(clean):.2f} s {spread}" if clean else "-"
        print(f"{name:20} {len(clean)} of {len(each)} restarts clean, {median}")
    ours, fixed = seconds["rocsteady"], seconds["torchrun, own store"]
    pairs = [a / b for a, b in zip(ours, fixed, strict=True) if a is not None and b is not None]
    if pairs:
        spread = f"{statistics.median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})"
        print(f"rocsteady / torchrun with own store: median ratio {spread}")


if __name__ == "__main__":
    main()
