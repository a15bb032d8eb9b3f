"""What a run would see of a machine's GPUs, for those who choose its strategy."""

from __future__ import annotations

from rocsteady.doctor.facts import release_arches
from rocsteady.doctor.knowledge.gpu_names import gfx_of
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.training_gpus import trainable, visible
from rocsteady.model import Value


class Visible(Value, frozen=True, kw_only=True):
    """How many there are, what they are, and what torch has code for."""

    gpus: int
    gfx: tuple[str, ...]
    arches: tuple[str, ...]


def visible_to_a_run(machine: Machine, knowledge: Knowledge) -> Visible:
    """Judge by masks, driver and torch; what does not show counts as one GPU of any kind."""
    gfx = (gfx_of(gpu, knowledge) for gpu in trainable(machine))
    return Visible(
        gpus=_count(machine),
        gfx=tuple(filter(None, dict.fromkeys(gfx))),
        arches=release_arches(machine, knowledge),
    )


def _count(machine: Machine) -> int:
    """Count what a run would see; WSL2 and NVIDIA's driver show nothing to us."""
    torch = machine.torch
    unseen = machine.system.dxg or (torch is not None and torch.build == "cuda")
    if torch is not None and torch.build == "cpu":
        return 0
    return len(visible(machine)) or int(unseen)
