"""Finds out which GPU, system and Python are meant, and lists the builds of torch for them."""

from __future__ import annotations

from datetime import UTC, datetime

from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.knowledge.gpu_names import gfx_of, named_gfx
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.torch_offers import torch_offers
from rocsteady.doctor.training_gpus import trainable
from rocsteady.doctor.values import TorchOffers
from rocsteady.errors import ExaminationError
from rocsteady.system.root import Root


def find_torch_offers(
    root: Root, *, gpus: tuple[str, ...], system: str | None, python: str | None
) -> TorchOffers:
    """List the builds; what is not named is read from the machine below ``root``."""
    knowledge = doctors_knowledge()
    named = tuple(dict.fromkeys(named_gfx(gpu, knowledge) for gpu in gpus))
    machine, _ = examine(root, knowledge.variables)
    return torch_offers(
        machine,
        knowledge,
        gfxs=named or _gfxs_here(machine, knowledge),
        system=system or ("wsl" if machine.system.wsl else machine.system.os),
        python=python or _python_here(machine),
        today=datetime.now(tz=UTC).date(),
    )


def _gfxs_here(machine: Machine, knowledge: Knowledge) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(gfx_of(gpu, knowledge) or "" for gpu in trainable(machine)))
    known = tuple(gfx for gfx in found if gfx in knowledge.arches)
    if known:
        return known
    if any(found):
        raise ExaminationError(f"no builds are known for {', '.join(filter(None, found))}")
    raise ExaminationError("no AMD GPU was found here; name one with --gpu, such as --gpu gfx1100")


def _python_here(machine: Machine) -> str:
    version = machine.python.version if machine.python else None
    return ".".join((version or "").split(".")[:2])
