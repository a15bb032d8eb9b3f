"""What remedies ask of the machine and of the variables in force."""

from __future__ import annotations

import msgspec

from rocsteady.machine.torch_build import made_by
from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused
from rocsteady.remedies.situation import Situation
from rocsteady.versions import version_fits


def without_gpu(situation: Situation) -> str:
    """Say why nothing that acts on GPUs is right here; "" if it may be."""
    if situation.strategy.device == "cpu":
        return "the run does not use GPUs"
    return "" if situation.gpus else "no GPU was found"


def without_rocm(situation: Situation) -> str:
    """Say why nothing that only ROCm reads is right here; "" if it may be."""
    torch = situation.machine.torch
    if torch is not None and torch.build != "rocm":
        return f"torch {torch.version} is not built for ROCm"
    return without_gpu(situation)


def without_rocr(situation: Situation) -> str:
    """Say the same for what ROCr reads, which Windows does not have."""
    if situation.machine.system.os == "windows":
        return "ROCr, which reads the variable, does not exist on Windows"
    return without_rocm(situation)


def gfx_names(situation: Situation) -> tuple[str, ...]:
    """Return what the GPUs are, as far as that is known. Beside a card, the APU does not count."""
    gpus = situation.machine.gpus.gpus
    cards = [gpu for gpu in gpus if not gpu.integrated] or gpus
    return situation.gfx or tuple(dict.fromkeys(gpu.gfx for gpu in cards if gpu.gfx))


def torch_fits(situation: Situation, wanted: str) -> bool:
    """Compare the version of torch; one that is not known fits nothing."""
    torch = situation.machine.torch
    return torch is not None and version_fits(torch.version, wanted)


def rocm_fits(situation: Situation, wanted: str) -> bool:
    """Compare the ROCm release that torch was built for; one that is not known fits nothing."""
    torch = situation.machine.torch
    return torch is not None and version_fits(torch.rocm or "", wanted)


def built_by_amd(situation: Situation) -> bool:
    """Tell AMD's own build of torch: its tag has three numbers, as in +rocm7.14.0."""
    torch = situation.machine.torch
    return torch is not None and made_by(torch) == "amd"


def half_crashes(situation: Situation) -> bool:
    """Tell the one pair of which it is known that rocBLAS crashes in half precision."""
    return (
        "gfx1100" in gfx_names(situation)
        and torch_fits(situation, ">=2.8,<2.9")
        and rocm_fits(situation, ">=6.3,<6.4")
        and not without_rocm(situation)
    )


def setting(situation: Situation, name: str, value: str) -> Strategy | Refused:
    """Set a variable, unless it is set: what the user has set is left as it is."""
    ours = situation.strategy.variables
    if situation.in_force.get(name) == value:
        return Refused(why=f"{name}={value} is already set")
    if name in ours:
        return Refused(why=f"an earlier remedy changed {name}")
    if name in situation.variables:
        return Refused(why=f"you have set {name}={situation.variables[name]}")
    return msgspec.structs.replace(situation.strategy, variables={**ours, name: value})
