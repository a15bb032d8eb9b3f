"""How fast GPUs are by their makers' figures, so that a pace measured on one can be scaled."""

from __future__ import annotations

from collections.abc import Iterable

from rocsteady.knowledge.reader import DataFolder, Problems, unsourced
from rocsteady.model import Value


class CardSpeed(Value, frozen=True, kw_only=True):
    """Peak figures of one card. None: no source says."""

    name: str
    memory: float  # GB
    sources: tuple[str, ...]
    devices: tuple[int, ...] = ()  # PCI devices; none for a card that is only rented
    compute_units: int | None = None
    fp32: float | None = None  # TFLOPS, without sparsity
    half: float | None = None  # TFLOPS in fp16; with matrix units the same in bf16
    bandwidth: float | None = None  # GB/s


def load_speeds(data: DataFolder | None = None) -> dict[str, CardSpeed]:
    """Read the cards by name."""
    data = data or DataFolder()
    sources = data.sources

    def wrong_with(card: CardSpeed) -> Problems:
        if not card.sources:
            yield "sources", "every card has one"
        yield from unsourced(card.sources, sources)
        if bool(card.devices) != (card.compute_units is not None):
            yield "compute_units", "goes with devices: a device alone is often shared"
        for field in ("memory", "compute_units", "fp32", "half", "bandwidth"):
            figure = getattr(card, field)
            if figure is not None and figure <= 0:
                yield field, "must be more than 0"

    entries = data.entries(data.document("gpu_speed.toml", "card"), "card", CardSpeed)
    return data.named(entries, lambda card: card.name, "name", wrong_with)


def speed_of(
    cards: Iterable[CardSpeed], device: int | None, compute_units: int | None
) -> CardSpeed | None:
    """Return the card of this PCI device that has so many units; None if it is not known."""
    if device is None or compute_units is None:
        return None
    for card in cards:
        if device in card.devices and card.compute_units == compute_units:
            return card
    return None
