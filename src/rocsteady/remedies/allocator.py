"""One key of the settings of PyTorch's GPU memory allocator, added to those that are in force.

Of the three names that the settings may have, torch reads the first that is set; the first name is
read from 2.9 on.
"""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import torch_fits, without_gpu
from rocsteady.remedies.remedy import Refused
from rocsteady.remedies.situation import Situation

NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
CANCELLING = ("PYTORCH_NO_HIP_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING")


def with_key(situation: Situation, key: str, value: str) -> Strategy | Refused:
    """Add a key to the settings that torch reads; what the user has set of it stays."""
    force, torch = situation.in_force, situation.machine.torch
    if torch is not None and torch.build == "cpu":
        return Refused(why=f"torch {torch.version} has no GPU memory to manage")
    if why := without_gpu(situation):
        return Refused(why=why)
    if cancelling := [name for name in CANCELLING if name in force]:
        return Refused(why=f"{cancelling[0]} disables every allocator setting")
    names = NAMES if torch_fits(situation, ">=2.9") else NAMES[1:]
    name = next((name for name in names if force.get(name)), names[0])
    if f"{key}:" in force.get(name, ""):
        return Refused(why=f"{name} already sets {key}")
    ours = situation.strategy.variables
    joined = ",".join(part for part in (force.get(name, ""), f"{key}:{value}") if part)
    return msgspec.structs.replace(situation.strategy, variables={**ours, name: joined})
