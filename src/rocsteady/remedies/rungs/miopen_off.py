"""Convolutions of PyTorch's own instead of MIOpen's."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="miopen-off",
    title="Convolutions without MIOpen",
    answers=(
        "hang-in-kernel-search",
        "miopen-failure",
    ),
    cost=(
        "about a tenth of the speed where MIOpen works well, and more memory; faster where it does"
        " not"
    ),
    rank=60,
    sources=(
        "pytorch/pytorch#33118",
        "ROCm/MIOpen#3964",
        "Comfy-Org/ComfyUI#15615",
        "ROCm/TheRock#2591",
        "kohya-ss/musubi-tuner#592",
        "kohya-ss/sd-scripts#2417",
    ),
    evidence=(
        "the first thread added the switch; users report that it ended failures on gfx1151"
        " with ROCm 10.0 and crashes on gfx1030, and cost a tenth of the speed; 1.5 to 34"
        " times faster in the fifth; in the last, on gfx1200, it did not help for long"
    ),
    when_not="Models without convolutions, poolings, batch norms and recurrent layers.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set torch.backends.cudnn.enabled, which is MIOpen's switch on ROCm, to False."""
    if situation.strategy.miopen is False:
        return Refused(why="MIOpen is already off")
    why = without_rocm(situation)
    return Refused(why=why) if why else msgspec.structs.replace(situation.strategy, miopen=False)
