"""Finds out which GPU, system and Python are meant, and lists the builds of torch for them."""

from __future__ import annotations

import re

from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.torch_offers import torch_offers
from rocsteady.doctor.trainable import trainable
from rocsteady.errors import ExaminationError
from rocsteady.knowledge.cards import gfx_of
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine, examine
from rocsteady.machine.root import Root
from rocsteady.vocabulary import TorchOffers


def find_torch_offers(
    root: Root, *, gpu: str | None, system: str | None, python: str | None
) -> TorchOffers:
    """List the builds; what is not named is read from the machine below ``root``."""
    knowledge = doctors_knowledge()
    gfx = named_gfx(gpu, knowledge) if gpu else None
    machine, _ = examine(root, knowledge.variables)
    return torch_offers(
        machine,
        knowledge,
        gfx=gfx or _gfx_here(machine, knowledge),
        system=system or ("wsl" if machine.system.wsl else machine.system.os),
        python=python or _python_here(machine),
    )


def named_gfx(name: str, knowledge: Knowledge) -> str:
    """Return the architecture that a person means: its own name, or the only one of a card."""
    if name in knowledge.arches:
        return name
    words = _words(name)
    named = {
        product.gfx for product in knowledge.products if words and words <= _words(product.name)
    }
    if len(named) == 1:
        return named.pop()
    raise LookupError(name)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", name.lower())) - {"amd", "radeon", "xt"}


def _gfx_here(machine: Machine, knowledge: Knowledge) -> str:
    for gpu in trainable(machine):
        gfx = gfx_of(gpu, knowledge)
        if gfx:
            return gfx
    raise ExaminationError("no AMD GPU was found here; name one with --gpu, such as --gpu gfx1100")


def _python_here(machine: Machine) -> str:
    version = machine.python.version if machine.python else None
    return ".".join((version or "").split(".")[:2])
