"""Which GPUs a training run would use.

ROCR_VISIBLE_DEVICES acts first and renumbers what is left; HIP_VISIBLE_DEVICES, or its CUDA name
where that is not set, then counts from 0 among those. Both stop at the first number that is not
there. Of what they leave one trains on the cards, and on the processor's own only without one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocsteady.machine.gpus import Gpu
from rocsteady.machine.machine import Machine

FIRST = "ROCR_VISIBLE_DEVICES"
SECOND = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_NUMBER = re.compile(r"-?\d{1,4}", re.ASCII)


def trainable(machine: Machine) -> tuple[Gpu, ...]:
    """Return the GPUs one would train on, as things stand."""
    seen = visible(machine)
    return tuple(gpu for gpu in seen if not gpu.integrated) or seen


def visible(machine: Machine) -> tuple[Gpu, ...]:
    """Return the GPUs that the variables leave; all, where that cannot be told."""
    values = settings(machine)
    gpus = machine.gpus.gpus
    if machine.system.os == "linux":
        gpus = _left(gpus, values.get(FIRST, ""))
    return _left(gpus, values.get(second(values), ""))


def settings(machine: Machine) -> Mapping[str, str]:
    """Return the variables in force whose values are known."""
    return {each.name: each.value for each in machine.variables if each.value is not None}


def second(values: Mapping[str, str]) -> str:
    """Return which of the two names of the second filter is read."""
    return next((name for name in SECOND if entries(values.get(name, ""))), SECOND[0])


def entries(value: str) -> list[str]:
    """Return the parts of a list of devices."""
    return [entry.strip() for entry in value.split(",") if entry.strip()]


def beyond(entry: str, count: int) -> bool:
    """Tell a number that is not one of ``count``; an id that is not a number is left alone."""
    return _NUMBER.fullmatch(entry) is not None and not 0 <= int(entry) < count


def _left(gpus: tuple[Gpu, ...], value: str) -> tuple[Gpu, ...]:
    wanted = entries(value)
    if not wanted:
        return gpus  # not set; what an empty list does differs from release to release
    found = []
    for entry in wanted:
        if beyond(entry, len(gpus)):
            break
        gpu = gpus[int(entry)] if _NUMBER.fullmatch(entry) else _named(gpus, entry)
        if gpu is None:
            return gpus  # an id that cannot be compared
        found.append(gpu)
    return tuple(found)


def _named(gpus: tuple[Gpu, ...], entry: str) -> Gpu | None:
    """Find a GPU by the id that ROCm gives it: its serial in hexadecimal."""
    ids = {f"GPU-{int(gpu.serial):016x}": gpu for gpu in gpus if gpu.serial.isdecimal()}
    return ids.get(entry)
