"""What GPUs can be rented, for how much, and on what day somebody saw that price."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Annotated

from msgspec import Meta

from rocsteady.doctor.knowledge.reader import DataFolder, Problems, unsourced
from rocsteady.doctor.knowledge.values import Figure, Slug, Sources, Text
from rocsteady.model import Value

# How fast GPUs are by their makers' figures, so that a pace measured on one can be scaled.


class CardSpeed(Value, frozen=True, kw_only=True):
    """Peak figures of one card. None: no source says."""

    name: str
    memory: Figure  # GB
    sources: Sources
    devices: tuple[int, ...] = ()  # PCI devices; none for a card that is only rented
    compute_units: Annotated[int, Meta(gt=0)] | None = None
    fp32: Figure | None = None  # TFLOPS, without sparsity
    half: Figure | None = None  # TFLOPS in fp16; with matrix units the same in bf16
    bandwidth: Figure | None = None  # GB/s


def load_speeds(data: DataFolder | None = None) -> dict[str, CardSpeed]:
    data = data or DataFolder()
    sources = data.sources

    def wrong_with(card: CardSpeed) -> Problems:
        yield from unsourced(card.sources, sources)
        if bool(card.devices) != (card.compute_units is not None):
            yield "compute_units", "goes with devices: a device alone is often shared"

    entries = data.entries(data.document("gpu_speed.toml", "card"), "card", CardSpeed)
    return data.named(entries, "name", wrong_with)


def speed_of(
    cards: Iterable[CardSpeed], device: int | None, compute_units: int | None, name: str = ""
) -> CardSpeed | None:
    """Return the card of this PCI device with so many units, or where none are told, this name."""
    same = (it for it in cards if device in it.devices)
    told = compute_units or name
    return next((it for it in same if told in (it.compute_units, it.name)), None)


OLD_AFTER_DAYS = 14


class Offer(Value, frozen=True, kw_only=True):
    """One GPU of one provider for one hour."""

    id: Slug  # "runpod-rtx-4090"
    provider: Text
    card: str  # a name of gpu_speed.toml, which has its memory and peak figures
    dollars: Figure  # an hour
    as_of: date
    source: str
    sky: str = ""  # the accelerator's name in SkyPilot; "" if its catalog does not have it
    infra: str = ""  # the cloud's name in SkyPilot
    instance: str = ""  # its instance type, a pattern; tools/refresh.py takes the price of no other
    note: str = ""


def load_offers(data: DataFolder | None = None) -> tuple[Offer, ...]:
    data = data or DataFolder()
    sources = data.sources
    cards = load_speeds(data)

    def wrong_with(offer: Offer) -> Problems:
        if offer.card not in cards:
            yield "card", f"{offer.card!r} is not in gpu_speed.toml"
        if offer.source not in sources:
            yield "source", f"{offer.source!r} is not in sources.toml"
        if bool(offer.sky) != bool(offer.infra):
            yield "sky", "goes with infra"

    entries = data.entries(data.document("prices.toml", "offer"), "offer", Offer)
    return tuple(data.named(entries, "id", wrong_with).values())


def is_old(offer: Offer, today: date) -> bool:
    """Return whether the price was seen too long ago to be relied on."""
    return (today - offer.as_of).days > OLD_AFTER_DAYS
