"""The link that counts is the narrowest between the GPU and the slot, not beyond it."""

from __future__ import annotations

import base64

import pytest

from rocsteady.doctor.machine.pci import Link, read_link, redirects_peers
from rocsteady.doctor.machine.recording import Entry, RecordedRoot, Recording
from rocsteady.doctor.machine.view import View

CARD = "/sys/bus/pci/devices/0000:03:00.0"
PORT = "/sys/devices/pci0000:00/0000:00:01.1"
UPSTREAM, DOWNSTREAM = f"{PORT}/0000:01:00.0", f"{PORT}/0000:01:00.0/0000:02:00.0"
GPU = f"{DOWNSTREAM}/0000:03:00.0"

Files = dict[str, str | Entry]


def link_of(files: Files) -> Link | None:
    files = files | {CARD: Entry(link=f"../../../devices/{GPU.removeprefix('/sys/devices/')}")}
    recording = Recording(
        version=1, note="", platform="linux", folder="/", files=files, environment={}
    )
    return read_link(View(RecordedRoot(recording)), CARD)


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


def test_a_card_without_bridges_is_asked_itself() -> None:
    assert link_of(gpu("8", "16.0 GT/s PCIe")) == Link(
        width=8, speed=16.0, max_width=16, max_speed=32.0
    )


def test_the_slot_stands_at_the_bridge_of_the_card() -> None:
    files = (
        gpu() | bridge(DOWNSTREAM, "16", "32.0 GT/s PCIe") | bridge(UPSTREAM, "4", "8.0 GT/s PCIe")
    )

    assert link_of(files) == Link(width=4, speed=8.0, max_width=16, max_speed=32.0)


def test_bridges_of_the_board_are_not_climbed() -> None:
    files = gpu() | bridge(DOWNSTREAM, "16", "32.0 GT/s PCIe")
    files |= bridge(UPSTREAM, "16", "16.0 GT/s PCIe")
    files |= bridge(PORT, "1", "2.5 GT/s PCIe", vendor="0x1022")

    assert link_of(files) == Link(width=16, speed=16.0, max_width=16, max_speed=32.0)


def test_a_bridge_of_another_maker_ends_the_climb() -> None:
    files = gpu() | bridge(DOWNSTREAM, "16", "16.0 GT/s PCIe", vendor="0x1b21")
    files |= bridge(UPSTREAM, "1", "2.5 GT/s PCIe")

    assert link_of(files) == Link(width=16, speed=32.0, max_width=16, max_speed=32.0)


@pytest.mark.parametrize(
    ("width", "speed"),
    [("0", "16.0 GT/s PCIe"), ("16", "Unknown"), ("", ""), ("x16", "16.0 GT/s PCIe")],
)
def test_a_link_that_is_down_or_unknown_is_no_link(width: str, speed: str) -> None:
    assert link_of(gpu(width, speed)) is None


def test_speeds_are_understood_as_older_kernels_spell_them() -> None:
    assert link_of(gpu("16", "8 GT/s")) == Link(width=16, speed=8.0, max_width=16, max_speed=32.0)


def test_the_climb_ends_at_the_root_of_a_hostile_recording() -> None:
    files: Files = {"/class": "0x060400", "/vendor": "0x1002", CARD: Entry(link="/card")}
    recording = Recording(
        version=1, note="", platform="linux", folder="/", files=files, environment={}
    )

    assert read_link(View(RecordedRoot(recording)), CARD) is None


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
    recording = Recording(
        version=1, note="", platform="linux", folder="/", files=files, environment={}
    )

    assert redirects_peers(View(RecordedRoot(recording)), CARD) is redirected
