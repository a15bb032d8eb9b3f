"""An image is chosen by the GPU first, and then by the release of torch that is used here."""

from __future__ import annotations

import pytest

from rocsteady.plan.exports.images import ACCELERATORS, WHEELS_FOR, image_for


@pytest.mark.parametrize(
    ("gfx", "torch", "chosen"),
    [
        ("gfx1100", "2.8.0+rocm6.4", "2.8.0"),
        ("gfx1100", "2.9.0", "2.9.1"),
        ("gfx1100", "2.5.1+rocm6.2", "2.7.1"),  # the next one that there is
        ("gfx1100", "2.10.0", "2.11.0"),  # 2.10 is named for Instinct only
        ("gfx942", "2.10.0", "2.10.0"),
        ("gfx1151", "2.8.0", "2.11.0"),  # not in the images of 7.2
        ("gfx1201", "2.14.1", "2.13.0"),  # none is as new
        ("gfx1201", "", "2.13.0"),
        ("gfx1201", "a nightly", "2.13.0"),
        ("", "2.12.0", "2.12.0"),
    ],
)
def test_the_image_has_the_same_torch_or_the_next(gfx: str, torch: str, chosen: str) -> None:
    image = image_for(gfx, torch)

    assert image is not None
    assert image.torch == chosen


def test_there_is_no_image_for_an_rx_5700_but_there_are_wheels() -> None:
    assert image_for("gfx1010", "2.5.1") is None
    assert "gfx1010" in WHEELS_FOR
    assert "gfx803" not in WHEELS_FOR


def test_what_can_be_rented_has_an_image() -> None:
    assert all(image_for(gfx) for gfx in ACCELERATORS.values())
