"""The link that counts is the narrowest between the GPU and the slot, not beyond it."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from rocsteady.doctor.machine.disk_root import DiskRoot
from rocsteady.doctor.machine.gpus import Link, displays, read_link, redirects_peers
from rocsteady.doctor.machine.recording import Entry
from tests.doctor.machine.recorded_files import Files, view_of

CARD = "/sys/bus/pci/devices/0000:03:00.0"
PORT = "/sys/devices/pci0000:00/0000:00:01.1"
UPSTREAM, DOWNSTREAM = f"{PORT}/0000:01:00.0", f"{PORT}/0000:01:00.0/0000:02:00.0"
GPU = f"{DOWNSTREAM}/0000:03:00.0"


def link_of(files: Files) -> Link | None:
    files = files | {CARD: Entry(link=f"../../../devices/{GPU.removeprefix('/sys/devices/')}")}
    return read_link(view_of(files), CARD)


def device(folder: str, width: str, speed: str, *, vendor: str, kind: str) -> Files:
    texts = {
        "vendor": vendor,
        "class": kind,
        "current_link_width": width,
        "current_link_speed": speed,
        "max_link_width": "16",
        "max_link_speed": "32.0 GT/s PCIe",
    }
    return {f"{folder}/{name}": f"{text}\n" for name, text in texts.items()}


def gpu(width: str = "16", speed: str = "32.0 GT/s PCIe") -> Files:
    return device(GPU, width, speed, vendor="0x1002", kind="0x030000")


def bridge(folder: str, width: str, speed: str, vendor: str = "0x1002") -> Files:
    return device(folder, width, speed, vendor=vendor, kind="0x060400")


FULL, HALF, SLOW = "32.0 GT/s PCIe", "16.0 GT/s PCIe", "2.5 GT/s PCIe"
SLOT = bridge(DOWNSTREAM, "16", FULL) | bridge(UPSTREAM, "16", HALF)
BOARD = bridge(PORT, "1", SLOW, vendor="0x1022")
OTHER = bridge(DOWNSTREAM, "16", HALF, vendor="0x1b21") | bridge(UPSTREAM, "1", SLOW)


@pytest.mark.parametrize(
    ("files", "width", "speed"),
    [
        pytest.param(gpu("8", HALF), 8, 16.0, id="without bridges, the card itself"),
        pytest.param(gpu("16", "8 GT/s"), 16, 8.0, id="as older kernels spell it"),
        pytest.param(gpu() | SLOT | bridge(UPSTREAM, "4", HALF), 4, 16.0, id="at the slot"),
        pytest.param(gpu() | SLOT | BOARD, 16, 16.0, id="bridges of the board are not climbed"),
        pytest.param(gpu() | OTHER, 16, 32.0, id="a bridge of another maker ends the climb"),
    ],
)
def test_the_link_that_counts(files: Files, width: int, speed: float) -> None:
    assert link_of(files) == Link(width=width, speed=speed, max_width=16, max_speed=32.0)


@pytest.mark.parametrize(
    ("width", "speed"),
    [("0", "16.0 GT/s PCIe"), ("16", "Unknown"), ("", ""), ("x16", "16.0 GT/s PCIe")],
)
def test_a_link_that_is_down_or_unknown_is_no_link(width: str, speed: str) -> None:
    assert link_of(gpu(width, speed)) is None


def test_the_climb_ends_at_the_root_of_a_hostile_recording() -> None:
    files: Files = {"/class": "0x060400", "/vendor": "0x1002", CARD: Entry(link="/card")}

    assert read_link(view_of(files), CARD) is None


@pytest.mark.parametrize(
    ("capabilities", "redirected"),
    [
        ("0d000100 0f00 0c00", True),  # ACS with both redirects on
        ("0d000100 0f00 0000", False),
        ("01000111 00000000 00000000 00000000 0d000100 0f00 0400", True),  # after AER, at 0x110
        ("01000100 00000000", None),  # no ACS
        ("", None),  # not readable by an ordinary user
    ],
)
def test_acs_is_found_among_the_capabilities_of_a_bridge(
    capabilities: str, *, redirected: bool | None
) -> None:
    space = bytes.fromhex(capabilities.replace(" ", ""))
    files: Files = gpu() | bridge(PORT, "16", "16.0 GT/s PCIe", vendor="0x1022")
    files |= bridge(UPSTREAM, "16", "16.0 GT/s PCIe") | bridge(DOWNSTREAM, "16", "16.0 GT/s PCIe")
    files[CARD] = Entry(link=f"../../../devices/{GPU.removeprefix('/sys/devices/')}")
    if space:
        pieces = {"256": base64.b64encode(space + bytes(64)).decode()}
        files[f"{PORT}/config"] = Entry(pieces=pieces)

    assert redirects_peers(view_of(files), CARD) is redirected


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
