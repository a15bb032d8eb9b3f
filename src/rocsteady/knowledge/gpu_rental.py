"""What GPUs can be rented, for how much, and on what day somebody saw that price."""

from __future__ import annotations

from datetime import date

from rocsteady.knowledge.reader import SLUG, DataFolder, Problems
from rocsteady.knowledge.speeds import load_speeds
from rocsteady.model import Value

OLD_AFTER_DAYS = 14


class Offer(Value, frozen=True, kw_only=True):
    """One GPU of one provider for one hour."""

    id: str  # "runpod-rtx-4090"
    provider: str
    card: str  # a name of gpu_speed.toml, which has its memory and peak figures
    dollars: float  # an hour
    as_of: date
    source: str
    sky: str = ""  # the accelerator's name in SkyPilot; "" if its catalog does not have it
    infra: str = ""  # the cloud's name in SkyPilot
    note: str = ""


def load_offers(data: DataFolder | None = None) -> tuple[Offer, ...]:
    """Read the offers."""
    data = data or DataFolder()
    sources = data.sources
    cards = load_speeds(data)

    def wrong_with(offer: Offer) -> Problems:
        if not SLUG.fullmatch(offer.id):
            yield "id", "lower case words joined by hyphens"
        if not offer.provider.strip():
            yield "provider", "empty"
        if offer.card not in cards:
            yield "card", f"{offer.card!r} is not in gpu_speed.toml"
        if offer.dollars <= 0:
            yield "dollars", "must be more than 0"
        if offer.source not in sources:
            yield "source", f"{offer.source!r} is not in sources.toml"
        if bool(offer.sky) != bool(offer.infra):
            yield "sky", "goes with infra"

    entries = data.entries(data.document("prices.toml", "offer"), "offer", Offer)
    return tuple(data.named(entries, lambda offer: offer.id, "id", wrong_with).values())


def is_old(offer: Offer, today: date) -> bool:
    """Tell whether the price was seen too long ago to be relied on."""
    return (today - offer.as_of).days > OLD_AFTER_DAYS
