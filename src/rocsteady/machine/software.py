"""What an observation is true of: GPUs, driver, ROCm, torch and Python, as a line that can be read.

Two lines are compared part by part, so that it can be said what has changed since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rocsteady.machine.machine import Machine

BETWEEN = "; "
GPU, DRIVER, ROCM, TORCH, PYTHON = "GPU", "driver", "ROCm", "torch", "Python"
PARTS = (GPU, DRIVER, ROCM, TORCH, PYTHON)
NONE = "none"


def software_of(machine: Machine) -> str:
    """Say it in one line, such as "GPU 2 x gfx1100; driver 6.8.5; ROCm 6.2; torch 2.5.1"."""
    return BETWEEN.join(f"{part} {value}" for part, value in _parts(machine))


def changes(before: str, now: str) -> str:
    """Say what is not as it was, such as "torch 2.9.1, now 2.10.0"; "" if nothing changed."""
    old, new = _read(before), _read(now)
    return BETWEEN.join(
        f"{part} {old.get(part, NONE)}, now {new.get(part, NONE)}"
        for part in PARTS
        if old.get(part, NONE) != new.get(part, NONE)
    )


def _parts(machine: Machine) -> Iterator[tuple[str, str]]:
    counted = Counter(gpu.gfx or gpu.name or "of unknown kind" for gpu in machine.gpus.gpus)
    gpus = ", ".join(f"{number} x {gfx}" if number > 1 else gfx for gfx, number in counted.items())
    yield GPU, gpus or NONE
    if gpus or machine.system.wsl:  # without a GPU its driver makes no difference
        driver = machine.driver
        yield DRIVER, driver.version or f"of kernel {machine.system.kernel}"
        rocm = dict.fromkeys(install.version for install in machine.rocm if install.version)
        yield ROCM, ", ".join(rocm) or NONE
    yield TORCH, machine.torch.version if machine.torch else NONE
    yield PYTHON, (machine.python.version if machine.python else "") or NONE


def _read(line: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition(" ") for part in line.split(BETWEEN))}
