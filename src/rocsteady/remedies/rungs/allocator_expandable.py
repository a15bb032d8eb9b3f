"""Let the segments of the memory allocator grow: they then do not fragment."""

from __future__ import annotations

import re

from rocsteady.remedies.allocator import with_key
from rocsteady.remedies.preconditions import fits, rocm_fits, torch_fits
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation
from rocsteady.vocabulary import Strategy

REMEDY = Remedy(
    id="allocator-expandable",
    title="Memory segments that grow",
    answers=("oom-fragmentation",),
    cost="nothing known",
    rank=30,
    sources=(
        "pytorch/pytorch#177974",
        "pytorch/pytorch#179930",
        "ROCm/pytorch#3106",
        "pytorch/pytorch#192259",
        "ROCm/rocm-systems#9820",
    ),
    evidence=(
        "PyTorch's own means against fragmentation; in ROCm builds since 2026, and seen to hang"
        " in the fourth thread"
    ),
    when_not=(
        "Builds before torch 2.12 (AMD's own: 2.11) or for ROCm below 7.0 ignore it; with ROCm 7.14"
        " or later on a kernel before 6.16 the first allocation hangs; not on Windows or WSL."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Add the key where the build has it and the kernel bears it."""
    why = _against(situation)
    return Refused(why=why) if why else with_key(situation, "expandable_segments", "True")


def _against(situation: Situation) -> str:
    machine = situation.machine
    if machine.system.os == "windows" or machine.system.wsl:
        return "it is not there under Windows and WSL"
    if machine.torch is None or machine.torch.build != "rocm":
        return ""  # CUDA builds have it; with_key refuses the others
    if not _built_in(situation):
        return f"torch {machine.torch.version} ignores it"
    # DRM 3.64 came with Linux 6.16; AMD's separate driver counts as the kernel it is made from.
    driver = machine.driver.version or machine.system.kernel
    if rocm_fits(situation, ">=7.14") and not fits(driver, ">=6.16"):
        return "with ROCm 7.14 and a driver before Linux 6.16 the first allocation hangs"
    return ""


def _built_in(situation: Situation) -> bool:
    """Tell a build that has it: 2.12 on, and AMD's own of 2.11, whose tag has three numbers."""
    torch = situation.machine.torch
    if torch is None or not rocm_fits(situation, ">=7.0"):
        return False
    amds = re.search(r"\+rocm\d+\.\d+\.\d", torch.version) is not None
    return torch_fits(situation, ">=2.11" if amds else ">=2.12")
