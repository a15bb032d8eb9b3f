"""The variables in force that ROCm and PyTorch read, or look as if they did.

The value of a variable that is not on the list is not kept: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rocsteady.model import Value

FAMILIES = (
    "AMD_", "AOTRITON_", "GPU_", "HIP_", "HIPBLASLT_", "HIPBLAS_", "HSA_", "HSAKMT_", "MIOPEN_",
    "NCCL_", "PAL_", "PYTORCH_", "RCCL_", "ROC_", "ROCBLAS_", "ROCM_", "ROCR_", "TORCH_",
    "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_",
)  # fmt: skip
_OF_ONE_NODE = re.compile(r"_\d+$")  # HSA_OVERRIDE_GFX_VERSION_1 is for node 1 only


class SetVariable(Value, frozen=True, kw_only=True):
    """One variable that is set."""

    name: str
    value: str | None  # None: not on the list, so not kept


def read_variables(
    environment: Mapping[str, str], known: Collection[str]
) -> tuple[SetVariable, ...]:
    """Return the variables that matter, by name."""
    return tuple(
        SetVariable(name=name, value=environment[name] if listed(name, known) else None)
        for name in sorted(environment)
        if listed(name, known) or name.startswith(FAMILIES)
    )


def listed(name: str, known: Collection[str]) -> bool:
    """Tell a variable of the list, also in its form for one node."""
    return name in known or _OF_ONE_NODE.sub("", name) in known
