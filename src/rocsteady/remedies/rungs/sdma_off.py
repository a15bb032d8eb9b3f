"""Copy with shaders instead of the DMA engines."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import rocm_fits, setting, without_rocr
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="sdma-off",
    title="Copies without the DMA engines",
    answers=("hang-in-copy",),
    cost="slower copies to and from the GPU",
    rank=43,
    sources=("ROCm/ROCm#2781", "ROCm/ROCm#6630", "field note A"),
    evidence="confirmed on an APU; reported not to help in the second thread and in field note A",
    when_not="Cards with ROCm 6.1 or later, and hangs that are not in a copy.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it on an APU, or for a ROCm in which AMD had not yet mended copies."""
    why = without_rocr(situation)
    if why:
        return Refused(why=why)
    gpus = situation.machine.gpus.gpus
    apu = bool(gpus) and all(gpu.integrated for gpu in gpus)
    if not apu and not rocm_fits(situation, "<6.1"):
        return Refused(why="it is known to help only on APUs and before ROCm 6.1")
    return setting(situation, "HSA_ENABLE_SDMA", "0")
