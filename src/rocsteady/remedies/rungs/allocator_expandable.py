"""Let the segments of the memory allocator grow: they then do not fragment."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.allocator import with_key
from rocsteady.remedies.preconditions import built_by_amd, gfx_names, rocm_fits, torch_fits
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation
from rocsteady.versions import version_fits

REMEDY = Remedy(
    id="allocator-expandable",
    title="Expandable memory segments",
    answers=("oom-fragmentation",),
    cost="silently wrong numbers were reported on RDNA4, and on gfx1100 with ROCm 7.14",
    rank=30,
    sources=(
        "pytorch/pytorch#177974",
        "pytorch/pytorch#179930",
        "ROCm/pytorch#3106",
        "pytorch/pytorch#192259",
        "ROCm/rocm-systems#9820",
        "pytorch/pytorch#195202",
        "ROCm/legacy-rocm-build#6603",
    ),
    evidence=(
        "PyTorch's own measure against fragmentation, in ROCm builds since 2026; it hung in"
        " the fourth thread and gave wrong numbers in the last two"
    ),
    when_not=(
        "Builds before torch 2.12 (AMD's own: 2.11) or for ROCm below 7.0 ignore it; with ROCm"
        " 7.14 or later on a kernel before 6.16 the first allocation hangs; on gfx1200 and"
        " gfx1201 training with it gave NaN, and together with max_split_size_mb it lost data;"
        " not available on Windows or WSL."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Add the key where the build has it and the kernel bears it."""
    why = _against(situation)
    return Refused(why=why) if why else with_key(situation, "expandable_segments", "True")


def _against(situation: Situation) -> str:
    machine = situation.machine
    if machine.system.os == "windows" or machine.system.wsl:
        return "it is not available on Windows and WSL"
    if machine.torch is None or machine.torch.build != "rocm":
        return ""  # CUDA builds have it; with_key refuses the others
    if not _built_in(situation):
        return f"torch {machine.torch.version} ignores it"
    if harmed := _harmed(situation):
        return harmed
    # DRM 3.64 came with Linux 6.16; AMD's separate driver counts as the kernel it is made from.
    driver = machine.driver.version or machine.system.kernel
    if rocm_fits(situation, ">=7.14") and not version_fits(driver, ">=6.16"):
        return "with ROCm 7.14 and a driver before Linux 6.16 the first allocation hangs"
    return ""


def _built_in(situation: Situation) -> bool:
    """Tell a build that has it: 2.12 on, and AMD's own of 2.11."""
    since = ">=2.11" if built_by_amd(situation) else ">=2.12"
    return rocm_fits(situation, ">=7.0") and torch_fits(situation, since)


def _harmed(situation: Situation) -> str:
    """Say where it was seen to give wrong numbers."""
    if set(gfx_names(situation)) & {"gfx1200", "gfx1201"}:
        return "on RDNA4 training with it has given NaN"
    if any("max_split_size_mb" in value for value in situation.in_force.values()):
        return "together with max_split_size_mb it has lost data"
    return ""
