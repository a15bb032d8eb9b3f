"""Let fused attention be used where AOTriton calls the GPU experimental: it saves memory."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import gfx_names, setting, torch_fits, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

VARIABLE = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"

REMEDY = Remedy(
    id="attention-fused",
    title="Fused attention, experimental on this GPU",
    answers=("oom-device",),
    cost="no speed, but AOTriton's authors call these kernels experimental",
    rank=33,
    sources=("unslothai/unsloth#8821", "ROCm/TheRock#1364", "ROCm/aotriton"),
    evidence=(
        "measured in the first thread: 0.52 GiB instead of 8.55 at a sequence length of 4096"
    ),
    when_not=(
        "After NaN or a hang in attention; and on gfx1100 with torch 2.9, whose AOTriton gave NaN"
        " there."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it where torch would take the plain kernel by itself."""
    why = without_rocm(situation) or _against(situation)
    return Refused(why=why) if why else setting(situation, VARIABLE, "1")


def _against(situation: Situation) -> str:
    names = gfx_names(situation)
    if not any(name.startswith(("gfx11", "gfx12")) for name in names):
        return "AOTriton has experimental kernels only for gfx11 and gfx12"
    if not torch_fits(situation, ">=2.7"):
        return "torch before 2.7 does not read the variable"
    if "gfx1100" in names and torch_fits(situation, ">=2.9,<2.10"):
        return "the AOTriton in torch 2.9 gives NaN on gfx1100"
    before = {entry.failure.kind for entry in situation.tried}
    if situation.strategy.attention == "math" or before & {"nan-loss", "hang-in-attention"}:
        return "fused attention already failed in this run"
    return ""
