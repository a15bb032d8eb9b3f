"""What people call the GPUs of a machine, and what code they run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.gpus import Gpu, PciGpu
from rocsteady.wording import size

BRANDS = re.compile(r"amd|radeon|instinct|graphics|series|\((?:tm|r)\)|\b(?:ai|gpu|pro|tm)\b")
SHORTEST_PART = 3  # letters of a part of a name


def gfx_of(gpu: Gpu, knowledge: Knowledge) -> str | None:
    """Return the instruction set: the driver's word, else what the card is known for."""
    product = knowledge.product(gpu.device, gpu.revision)
    return gpu.gfx or (product.gfx if product else None)


def named_gfx(name: str, knowledge: Knowledge) -> str:
    """Return the architecture that a person means: its own name, or the only one of a card.

    Blanks, case and brands do not count. Raises LookupError for a name of none, or of several.
    """
    asked = "".join(_words(name))
    called = [(gfx, _words(each)) for gfx, each in _names(knowledge)]
    exact = {gfx for gfx, words in called if "".join(words) == asked}
    begun = re.compile(rf"{re.escape(asked)}(?!\d)")
    some = {
        gfx
        for gfx, words in called
        for first in range(len(words))
        if len(asked) >= SHORTEST_PART and begun.match("".join(words[first:]))
    }
    for found in (exact, some):
        if len(found) == 1:
            return found.pop()
    raise LookupError(name)


def _names(knowledge: Knowledge) -> Iterator[tuple[str, str]]:
    """Yield what each architecture and its cards are called."""
    for arch in knowledge.arches.values():
        yield from ((arch.gfx, name) for name in (arch.gfx, *arch.cards, *arch.name.split(",")))
    yield from ((product.gfx, product.name) for product in knowledge.products)


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", BRANDS.sub(" ", name.lower()))


def card_name(gpu: Gpu | PciGpu, knowledge: Knowledge) -> str:
    """Return the name that the box had on it, as exactly as it is known."""
    told = gpu.name if isinstance(gpu, Gpu) else ""
    product = knowledge.product(gpu.device, gpu.revision)
    if told or product:
        return told or (product.name if product else "")
    return f"AMD GPU {gpu.device:#06x}" if gpu.device is not None else "AMD GPU"


def describe(
    gpus: tuple[Gpu, ...], knowledge: Knowledge, *, details: bool = True
) -> tuple[str, ...]:
    """Count GPUs by name: "2 x Radeon RX 7900 XT (gfx1100, 20 GiB)"."""
    alike: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        told = f" ({_details(gpu, knowledge)})" if details else ""
        alike.setdefault(f"{card_name(gpu, knowledge)}{told}", []).append(gpu)
    return tuple(_counted(label, group) for label, group in alike.items())


def _counted(label: str, gpus: list[Gpu]) -> str:
    if gpus[0].partition is not None:
        cards = len({gpu.pci_address[:-1] for gpu in gpus})
        return f"{len(gpus)} partitions of {cards} x {label}"
    return f"{len(gpus)} x {label}" if len(gpus) > 1 else label


def _details(gpu: Gpu, knowledge: Knowledge) -> str:
    details = [gfx_of(gpu, knowledge) or "driver does not say which gfx"]
    if gpu.vram_bytes:
        details.append(f"{_size(gpu.vram_bytes)}{' of its own' if gpu.integrated else ''}")
    if gpu.integrated and gpu.gtt_bytes:
        details.append(f"{_size(gpu.gtt_bytes)} shared")
    return ", ".join(details)


def _size(amount: int) -> str:
    """Round to what the box says: drivers keep a little back."""
    return size(amount, digits=0)
