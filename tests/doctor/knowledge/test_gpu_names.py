"""What people call the GPUs of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.knowledge.gpu_names import card_name, describe, gfx_of
from rocsteady.doctor.machine.gpus import Gpu, PciGpu

if TYPE_CHECKING:
    from tests.conftest import Recorded


@pytest.fixture
def card(recorded: Recorded) -> Gpu:
    return recorded.machine("rx7900xtx").gpus.gpus[0]


@pytest.mark.parametrize(
    ("told", "place", "name"),
    [
        ("Radeon RX 7900 GRE", (0x744C, 0xC8), "Radeon RX 7900 GRE"),
        ("", (0x744C, 0xC8), "Radeon RX 7900 XTX"),
        ("", (0x744C, None), "Radeon RX 7900 series"),
        ("", (0x0ABC, 0x00), "AMD GPU 0x0abc"),
        ("", (None, None), "AMD GPU"),
    ],
)
def test_the_machines_own_name_comes_first(
    recorded: Recorded, card: Gpu, told: str, place: tuple[int | None, int | None], name: str
) -> None:
    device, revision = place
    gpu = msgspec.structs.replace(card, name=told, device=device, revision=revision)

    assert card_name(gpu, recorded.knowledge) == name


def test_a_card_that_the_driver_does_not_offer_has_a_name_too(recorded: Recorded) -> None:
    (left_out,) = recorded.machine("rx7900xtx-old-card").gpus.not_offered

    assert isinstance(left_out, PciGpu)
    assert card_name(left_out, recorded.knowledge) == "Radeon RX 470/480/570/580"


def test_the_drivers_word_comes_before_what_a_card_is_known_for(
    recorded: Recorded, card: Gpu
) -> None:
    silent = msgspec.structs.replace(card, gfx=None)

    assert gfx_of(msgspec.structs.replace(card, gfx="gfx9999"), recorded.knowledge) == "gfx9999"
    assert gfx_of(silent, recorded.knowledge) == "gfx1100"
    assert gfx_of(msgspec.structs.replace(silent, device=1), recorded.knowledge) is None


@pytest.mark.parametrize(
    ("machine_name", "told"),
    [
        ("mi210-8", ("8 x Instinct MI210 (gfx90a, 64 GiB)",)),
        ("mi300x-cpx", ("63 partitions of 8 x Instinct MI300X (gfx942, 24 GiB)",)),
        ("strix-halo", ("Radeon 8060S Graphics (gfx1151, 2 GiB of its own, 112 GiB shared)",)),
        ("old-kernel", ("2 x Radeon Instinct MI25 (gfx900, 16 GiB)",)),
        (
            "rx7900xtx-rx6700xt",
            ("Radeon RX 7900 XTX (gfx1100, 24 GiB)", "Radeon RX 6700 XT (gfx1031, 12 GiB)"),
        ),
        ("no-amd-gpu", ()),
    ],
)
def test_equal_ones_are_told_together(
    recorded: Recorded, machine_name: str, told: tuple[str, ...]
) -> None:
    assert describe(recorded.machine(machine_name).gpus.gpus, recorded.knowledge) == told


def test_without_details(recorded: Recorded) -> None:
    gpus = recorded.machine("rx7900xt-pair").gpus.gpus

    assert describe(gpus, recorded.knowledge, details=False) == ("2 x Radeon RX 7900 XT",)
