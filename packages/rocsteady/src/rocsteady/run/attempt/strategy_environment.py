"""A strategy as the environment of a training process.

What HIP shows is settled by HIP_VISIBLE_DEVICES, or if that is empty by CUDA_VISIBLE_DEVICES; an
empty one hides nothing, and a list ends at the first number that there is no GPU of, so -1 hides
all (ROCm/clr, rocdevice.cpp). ROCR_VISIBLE_DEVICES filters before that, and there an empty one
hides all (ROCm/ROCR-Runtime, amd_filter_device.cpp). Unconfirmed on hardware.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from rocsteady_train.inside import wire

from rocsteady.errors import RocsteadyError
from rocsteady.model import CPU, Strategy

HIP, CUDA, ROCR = "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
NONE = "-1"
NO_COMPILE = "TORCHDYNAMO_DISABLE"


def environment(
    strategy: Strategy, existing: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables to set, and those to unset."""
    variables = {name: value for name, value in strategy.variables.items() if value is not None}
    unset = [name for name, value in strategy.variables.items() if value is None]
    left = {name: value for name, value in existing.items() if name not in unset} | variables
    if strategy.micro_batch is not None:
        variables[wire.MICRO_BATCH] = str(strategy.micro_batch)
    if strategy.compile is False:
        variables[NO_COMPILE] = "1"
    if strategy.device == CPU:
        variables |= {HIP: NONE, CUDA: NONE, ROCR: ""}
    elif strategy.gpus is not None:
        visible = ",".join(_among(_shown(left), gpu) for gpu in strategy.gpus)
        variables |= {HIP: visible, CUDA: visible}
    settings = {name: getattr(strategy, name) for name in wire.SETTINGS}
    inside = {name: value for name, value in settings.items() if value is not None}
    if inside:
        variables[wire.STRATEGY] = json.dumps({"version": wire.STRATEGY_VERSION, **inside})
    elif wire.STRATEGY in existing:  # of a run that this one was started by
        unset.append(wire.STRATEGY)
    return variables, tuple(name for name in unset if name not in variables)


def _shown(existing: Mapping[str, str]) -> list[str] | None:
    """Return the GPUs that the user lets HIP see, as HIP reads it; None: all."""
    mask = existing.get(HIP) or existing.get(CUDA)
    if not mask:
        return None
    shown: list[str] = []
    for name in mask.split(","):
        if not name.strip() or name.strip().startswith("-"):
            break
        shown.append(name.strip())
    return shown


def _among(shown: list[str] | None, gpu: int) -> str:
    if shown is None:
        return str(gpu)
    if gpu >= len(shown):
        visible = f"only {len(shown)} visible: {','.join(shown)}" if shown else "none is visible"
        raise RocsteadyError(f"there is no GPU {gpu}, counted from 0 ({visible})")
    return shown[gpu]
