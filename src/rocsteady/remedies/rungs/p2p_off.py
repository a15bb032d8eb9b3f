"""Send between GPUs through host memory."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import setting, without_gpu
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="p2p-off",
    title="No direct transfers between GPUs",
    answers=("hang-in-collective", "collective-timeout", "collective-error", "p2p-failure"),
    cost="slower collectives",
    rank=70,
    sources=(
        "ROCm/vllm#390",
        "ROCm/rccl-tests#120",
        "NVIDIA/nccl-tests#117",
        "pytorch/pytorch#52142",
    ),
    evidence="confirmed on AMD in the first thread and on NVIDIA in the third; no help in the last",
    when_not=("A single GPU. The cause is usually the IOMMU or a PCIe slot: see rocsteady doctor."),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it where ranks share a machine over RCCL or NCCL."""
    if situation.ranks < 2:  # noqa: PLR2004 - one rank has nobody to send to
        return Refused(why="there is one rank")
    why = without_gpu(situation)
    if situation.machine.system.os == "windows":
        why = "RCCL, which reads the variable, does not exist on Windows"
    return Refused(why=why) if why else setting(situation, "NCCL_P2P_DISABLE", "1")
