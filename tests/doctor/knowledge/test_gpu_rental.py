"""Offers of rented GPUs and the peak figures of cards: what the files have, and what is refused."""

from __future__ import annotations

import re
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.knowledge.gpu_rental import (
    CardSpeed,
    Offer,
    is_old,
    load_offers,
    load_speeds,
    speed_of,
)
from rocsteady.doctor.knowledge.reader import DATA, DataFolder

if TYPE_CHECKING:
    from rocsteady.doctor.knowledge.reader import Knowledge

OFFERS = load_offers()
CARDS = load_speeds()

each_offer = pytest.mark.parametrize("offer", OFFERS, ids=lambda offer: offer.id)
each_card = pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)

CARD = '[[card]]\nname = "A"\nmemory = 8\nhalf = 20\nsources = ["amd-mgpu"]\n'
OFFER = (
    '[[offer]]\nid = "x-a"\nprovider = "X"\ncard = "A"\ndollars = 0.5\n'
    'as_of = 2026-08-22\nsource = "amd-mgpu"\n'
)


def folder_with(tmp_path: Path, *, card: str = CARD, offer: str = OFFER) -> Path:
    shutil.copy(DATA / "sources.toml", tmp_path)
    (tmp_path / "gpu_speed.toml").write_text(card)
    (tmp_path / "prices.toml").write_text(offer)
    return tmp_path


@each_offer
def test_an_offer_says_what_skypilot_calls_it_or_that_it_has_none(offer: Offer) -> None:
    assert offer.infra in {"", "runpod", "vast", "lambda"}
    if offer.sky:
        named = offer.sky.replace("-", "").lower()
        letters = re.sub(r"\W|80GB|40GB|PCIe|SXM|Instinct", "", offer.card).lower()
        assert named.startswith(letters)


@each_offer
def test_a_price_is_seen_by_its_source_on_that_day(offer: Offer, knowledge: Knowledge) -> None:
    assert knowledge.sources[offer.source].date == offer.as_of.isoformat()
    assert 0.1 < offer.dollars < 10
    assert not offer.note or offer.note.endswith(".")


@each_offer
def test_a_pace_can_be_scaled_to_every_offer(offer: Offer) -> None:
    card = CARDS[offer.card]

    assert card.half
    assert card.bandwidth


@pytest.mark.parametrize(("days", "old"), [(0, False), (14, False), (15, True), (400, True)])
def test_a_price_is_old_after_14_days(days: int, *, old: bool) -> None:
    offer = OFFERS[0]

    assert is_old(offer, offer.as_of + timedelta(days=days)) is old


def test_a_clock_that_is_behind_makes_no_price_old() -> None:
    assert not is_old(OFFERS[0], date(2020, 1, 1))


@each_card
def test_figures_of_a_card_fit_each_other(card: CardSpeed) -> None:
    assert card.name.isascii()
    if card.fp32 and card.half:
        assert 1.9 <= card.half / card.fp32 <= 17
    if card.half and card.bandwidth:
        assert 40 <= 1000 * card.half / card.bandwidth <= 450  # operations for each byte


@each_card
def test_a_card_of_amd_is_one_that_the_doctor_knows(card: CardSpeed, knowledge: Knowledge) -> None:
    devices = {product.device for product in knowledge.products}

    assert set(card.devices) <= devices
    assert bool(card.devices) == card.name.startswith(("Radeon", "Instinct"))


def test_a_gpu_is_told_by_its_device_and_its_units() -> None:
    seen = {
        (0x731F, 40): "Radeon RX 5700 XT",
        (0x744C, 84): "Radeon RX 7900 XT",
        (0x744C, 96): "Radeon RX 7900 XTX",
        (0x7550, 64): "Radeon RX 9070 XT",
        (0x7408, 110): "Instinct MI250X, one half",
        (0x74A1, 304): "Instinct MI300X",
    }

    for (device, units), name in seen.items():
        assert speed_of(CARDS.values(), device, units) == CARDS[name]


@pytest.mark.parametrize(
    ("device", "units"), [(0x731F, 36), (0x74A1, 38), (0x731F, None), (None, 40), (None, None)]
)
def test_a_gpu_that_is_not_surely_known_has_no_figures(
    device: int | None, units: int | None
) -> None:
    assert speed_of(CARDS.values(), device, units) is None


def test_no_two_cards_look_alike() -> None:
    looks = [(device, card.compute_units) for card in CARDS.values() for device in card.devices]

    assert len(looks) == len(set(looks))


def test_files_are_read(tmp_path: Path) -> None:
    data = DataFolder(folder_with(tmp_path))

    assert load_speeds(data)["A"].fp32 is None
    assert load_offers(data)[0].as_of == date(2026, 8, 22)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (OFFER.replace('"A"', '"B"'), ("prices.toml", "x-a", "card", "gpu_speed.toml")),
        (OFFER.replace("0.5", "0"), ("prices.toml", "x-a", "dollars")),
        (OFFER.replace("amd-mgpu", "nobody"), ("prices.toml", "x-a", "source", "nobody")),
        (OFFER.replace("2026-08-22", '"August"'), ("prices.toml", "x-a", "as_of")),
        (OFFER + 'sky = "A"\n', ("prices.toml", "x-a", "sky", "infra")),
        (OFFER.replace("x-a", "X A"), ("prices.toml", "id")),
        (OFFER + OFFER, ("prices.toml", "x-a", "taken")),
        (OFFER + "price = 1\n", ("prices.toml", "x-a", "price")),
        (OFFER.replace("[[offer]]", "[[offers]]"), ("prices.toml", "offers")),
        (CARD.replace('["amd-mgpu"]', "[]"), ("gpu_speed.toml", "A", "sources")),
        (CARD.replace("amd-mgpu", "nobody"), ("gpu_speed.toml", "A", "nobody")),
        (CARD.replace("half = 20", "half = -20"), ("gpu_speed.toml", "A", "half")),
        (CARD + "devices = [0x731f]\n", ("gpu_speed.toml", "A", "compute_units")),
        (CARD + "tflops = 1\n", ("gpu_speed.toml", "A", "tflops")),
    ],
)
def test_what_is_wrong_is_listed_by_file_entry_and_field(
    tmp_path: Path, text: str, names: tuple[str, ...]
) -> None:
    of_card = text.startswith("[[card]]")
    data = DataFolder(folder_with(tmp_path, **{"card" if of_card else "offer": text}))

    (load_speeds if of_card else load_offers)(data)

    assert len(data.ignored) == 1
    assert all(name in data.ignored[0] for name in names), data.ignored
