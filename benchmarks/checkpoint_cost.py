"""What a checkpoint costs, against the bare copies, writes and reads of the same bytes.

A model with AdamW is saved and restored by Checkpointer; in each round, one after the other, the
same bytes are also copied in memory, saved by torch.save, written and read as they are:

    python benchmarks/checkpoint_cost.py --python PYTHON [--megabytes 600] [--rounds 5]

PYTHON is an interpreter with torch. Files are written to --folder, which should be on the disk that
is meant. Reads are of files that are in memory, as after a crash of the training alone; that is the
harder case, since nothing hides behind the disk. Use a quiet machine: hashing needs a core.
The exit code says whether all is as wanted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

PIECE = 8 * 1024 * 1024
HERE = "ROCSTEADY_BENCHMARK_HERE"


@dataclass
class Times:
    """Seconds that each thing took, by its name, in all rounds."""

    found: dict[str, list[float]] = field(default_factory=dict)

    def of(self, name: str, do: Callable[[], object]) -> None:
        """Do something, and note how long it took."""
        began = time.perf_counter()
        do()
        self.note(name, time.perf_counter() - began)

    def note(self, name: str, seconds: float) -> None:
        """Note how long something took."""
        self.found.setdefault(name, []).append(seconds)

    def __getitem__(self, name: str) -> float:
        return median(self.found[name])


@dataclass(frozen=True)
class Wanted:
    """A figure, and what it should be."""

    name: str
    value: float
    limit: float
    least: bool  # the limit is the least that is wanted, not the most
    bound_by: str

    @property
    def good(self) -> bool:
        """Tell whether it is as wanted."""
        return self.value >= self.limit if self.least else self.value <= self.limit


def made(megabytes: int, *, trained: bool) -> dict[str, Any]:
    """Make a model and its optimizer: a third of the bytes are weights, two thirds AdamW's."""
    import torch  # noqa: PLC0415 - this interpreter has it
    from torch import nn  # noqa: PLC0415

    width = 1024
    blocks = max(1, round(megabytes * 1e6 / 3 / 4 / (width * width + width)))
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(blocks)))
    optimizer = torch.optim.AdamW(model.parameters())
    if trained:
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 1e-3)
        optimizer.step()
        optimizer.zero_grad()
    return {"model": model, "optimizer": optimizer}


def tensors_of(state: dict[str, Any]) -> list[Any]:
    """Return all tensors of a state."""
    slots = state["optimizer"].state_dict()["state"].values()
    return [*state["model"].state_dict().values(), *(t for slot in slots for t in slot.values())]


def memory(word: str) -> int:
    """Read a size from /proc/self/status, in bytes; 0 where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    found = next(line for line in lines if line.startswith(f"{word}:"))
    return int(found.split()[1]) * 1024


def forget_peak() -> None:
    """Let the kernel measure the peak of memory from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def raw_write(path: Path, content: memoryview) -> None:
    """Write bytes to the disk itself."""
    with path.open("wb", buffering=0) as stream:
        for start in range(0, len(content), PIECE):
            stream.write(content[start : start + PIECE])
        os.fsync(stream.fileno())


def torch_save(path: Path, state: dict[str, Any]) -> None:
    """Do what scripts do, and see to it that it is on the disk."""
    import torch  # noqa: PLC0415

    with path.open("wb") as stream:
        torch.save({name: value.state_dict() for name, value in state.items()}, stream)
        stream.flush()
        os.fsync(stream.fileno())


def read_and_hash(path: Path) -> None:
    """Read a file as it is, and hash it."""
    piece = bytearray(4 * 1024 * 1024)
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(piece):
            digest.update(memoryview(piece)[:count])


def measure(folder: Path, megabytes: int, rounds: int) -> tuple[Times, dict[str, float], int]:
    """Do everything in turn; return the times, the memory in bytes, and the bytes of the state."""
    import torch  # noqa: PLC0415
    from rocsteady_train import Checkpointer  # noqa: PLC0415

    times = Times()
    sizes: dict[str, float] = {}
    state, other = made(megabytes, trained=True), made(megabytes, trained=False)
    tensors = tensors_of(state)
    size = int(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    checkpointer = Checkpointer(folder / "checkpoints", keep=1)

    before = memory("VmRSS")
    forget_peak()
    for step in (1, 2):  # both buffers in use, as at most
        checkpointer.save(step, state)
        times.note("stall of the first two", checkpointer.stall)
    checkpointer.wait()
    sizes["save"] = memory("VmHWM") - before
    before = memory("VmRSS")
    forget_peak()
    checkpointer.restore(other)
    sizes["restore"] = memory("VmHWM") - before

    source, there = torch.ones(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
    content = memoryview(there.numpy()).cast("B")
    for step in range(3, rounds + 3):
        times.of("copy in memory", lambda: there.copy_(source))
        times.of("save()", lambda step=step: checkpointer.save(step, state))  # type: ignore[misc]
        checkpointer.wait()
        times.note("written by us", checkpointer.writing)
        times.of("written as it is", lambda: raw_write(folder / "raw", content))
        (folder / "raw").unlink()
        times.of("torch.save and fsync", lambda: torch_save(folder / "saved.pt", state))
        (folder / "saved.pt").unlink()
        path = folder / "checkpoints" / f"step-{step:09d}" / "rank-0.safetensors"
        times.of("read and hashed", lambda path=path: read_and_hash(path))  # type: ignore[misc]
        other = made(megabytes, trained=False)
        times.of("restore()", lambda other=other: checkpointer.restore(other))  # type: ignore[misc]
    for one, two in zip(tensors, tensors_of(other), strict=True):
        if not torch.equal(one, two):
            sys.exit("what came back is not what was saved")
    checkpointer.close()
    return times, sizes, size


def figures(times: Times, sizes: dict[str, float], size: int) -> list[Wanted]:
    """Compare with what is wanted."""
    return [
        Wanted(
            "save() / copy in memory",
            times["save()"] / times["copy in memory"],
            1.3,
            least=False,
            bound_by="memory bandwidth; the rest is the plan and the state_dicts",
        ),
        Wanted(
            "save() / torch.save and fsync",
            times["save()"] / times["torch.save and fsync"],
            0.1,
            least=False,
            bound_by="memory bandwidth against that of the disk",
        ),
        Wanted(
            "bandwidth written by us / as it is",
            times["written as it is"] / times["written by us"],
            0.8,
            least=True,
            bound_by="the disk; hashing goes on in another thread",
        ),
        Wanted(
            "speed of restore() / read and hashed",
            times["read and hashed"] / times["restore()"],
            0.8,
            least=True,
            bound_by="SHA-256 on one core; the rest is the copy to where it belongs",
        ),
        Wanted(
            "peak memory of two saves at once / state",
            sizes["save"] / size,
            2.2,
            least=False,
            bound_by="two buffers of the size of the state",
        ),
        Wanted(
            "peak memory of restore() / state",
            sizes["restore"] / size,
            2.2,
            least=False,
            bound_by="the optimizer's new tensors, and pages of the file",
        ),
    ]


def report(times: Times, sizes: dict[str, float], size: int) -> bool:
    """Print everything, and tell whether it is as wanted."""
    print(f"state: {size / 1e6:.0f} MB, {os.cpu_count()} cores")
    for name, all_ in times.found.items():
        seconds, speed = median(all_), size / median(all_) / 1e6
        span = f"({min(all_):.3f} to {max(all_):.3f})"
        print(f"  {name:24} {seconds:6.3f} s {span:18} {speed:6.0f} MB/s")
    wanted = figures(times, sizes, size)
    for one in wanted:
        print(
            f"  {one.name:42} {one.value:5.2f} (at {'least' if one.least else 'most'} {one.limit})"
            f" {'good' if one.good else 'MISSED'}; limited by {one.bound_by}"
        )
    return all(one.good for one in wanted)


def main() -> None:
    """Go over to the interpreter with torch, and measure there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter with torch")
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; else a temporary folder")
    arguments = parser.parse_args()
    if HERE not in os.environ:
        source = str(Path(__file__).resolve().parents[1] / "packages/rocsteady_train/src")
        environment = os.environ | {"PYTHONPATH": source, HERE: "1"}
        os.execve(arguments.python, [arguments.python, *sys.argv], environment)  # noqa: S606
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        measured = measure(Path(folder), arguments.megabytes, arguments.rounds)
    sys.exit(0 if report(*measured) else 1)


if __name__ == "__main__":
    main()
