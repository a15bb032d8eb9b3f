"""Which connectors of AMD GPUs have a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocsteady.doctor.machine.disk_root import DiskRoot
from rocsteady.doctor.machine.pci import displays


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    folder = tmp_path / "sys/class/drm"
    for card, vendor in (("card0", "0x1002"), ("card1", "0x10de")):
        (folder / card / "device").mkdir(parents=True)
        (folder / card / "device/vendor").write_text(f"{vendor}\n")
        for connector, status in (("DP-1", "connected"), ("HDMI-A-1", "disconnected")):
            (folder / f"{card}-{connector}").mkdir()
            (folder / f"{card}-{connector}/status").write_text(f"{status}\n")
    return tmp_path


def test_a_screen_on_an_amd_gpu(cards: Path) -> None:
    assert displays(DiskRoot(cards)) == ("card0-DP-1",)


def test_a_card_without_a_screen(cards: Path) -> None:
    (cards / "sys/class/drm/card0-DP-1/status").write_text("disconnected\n")

    assert displays(DiskRoot(cards)) == ()


def test_where_the_kernel_says_nothing_it_cannot_be_told(tmp_path: Path) -> None:
    assert displays(DiskRoot(tmp_path)) is None
