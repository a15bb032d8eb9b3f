"""The facts of a machine, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.machine.view import Unread
from rocsteady.screens.doctor import render_machine

if TYPE_CHECKING:
    from tests.conftest import Recorded


@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("colour", [True, False])
def test_every_recorded_machine_has_a_page(
    recorded: Recorded, every_machine: str, width: int, *, colour: bool
) -> None:
    machine = recorded.machine(every_machine)

    page = render_machine(machine, recorded.knowledge, width=width, colour=colour)

    assert page.isascii()
    assert ("\x1b" in page) is colour
    assert page.endswith(f"{machine.facts_read} facts read.\n")
    for line in page.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines():
        assert len(line) <= width or len(line.split()[-1]) > width // 2, line  # one long word


def test_the_page_of_a_healthy_machine(recorded: Recorded) -> None:
    machine = recorded.machine("rx7900xtx")
    counted = msgspec.structs.replace(machine, facts_read=60)

    assert render_machine(counted, recorded.knowledge, width=80, colour=False) == (
        "System\n"
        "  system              Ubuntu 24.04.3 LTS\n"
        "  kernel              6.14.0-37-generic\n"
        "  command line        iommu=pt\n"
        "  driver              in kernel\n"
        "  boot id             00000000-0000-4000-8000-000000000006\n"
        "\n"
        "GPU 1\n"
        "  card                Radeon RX 7900 XTX\n"
        "  kind                discrete\n"
        "  gfx                 gfx1100\n"
        "  PCI                 0000:03:00.0, device 0x744c revision 0xc8\n"
        "  compute units       96\n"
        "  memory              24 GiB\n"
        "  render node         renderD128\n"
        "  link                x16 at 16 GT/s\n"
        "  IOMMU type          identity\n"
        "  firmware            kfd 2140, kfd_sdma 20\n"
        "\n"
        "Access\n"
        "  /dev/kfd             usable (mode 0660, group render)\n"
        "  /dev/dri/renderD128  usable (mode 0660, group render)\n"
        "  groups               user, video, render\n"
        "\n"
        "Limits\n"
        "  memory              31.2 GiB\n"
        "  available           27.3 GiB\n"
        "  shared memory       15.6 GiB free of 15.6 GiB, tmpfs\n"
        "  working folder      372.5 GiB free of 931.3 GiB, ext4\n"
        "\n"
        "ROCm\n"
        "  MIOpen kernel cache   /home/user/.cache/miopen\n"
        "  MIOpen user database  /home/user/.config/miopen\n"
        "\n"
        "Python and torch\n"
        "  Python              3.12.3 in /home/user/venv (from VIRTUAL_ENV)\n"
        "  torch               2.12.0+rocm7.2\n"
        "  build               rocm\n"
        "  HIP                 7.2.26015-fc0010cf6a\n"
        "  ROCm                7.2\n"
        "  code for            gfx900 gfx906 gfx908 gfx90a gfx942 gfx950 gfx1030 gfx1100\n"
        "                      gfx1101 gfx1102 gfx1150 gfx1151 gfx1200 gfx1201\n"
        "  known by            file names\n"
        "  includes ROCm       yes\n"
        "  packages            torch 2.12.0+rocm7.2, torchvision 0.27.0+rocm7.2,\n"
        "                      triton_rocm 3.7.0\n"
        "\n"
        "60 facts read.\n"
    )


@pytest.mark.parametrize(
    ("machine_name", "words"),
    [
        ("withheld", "withheld KFD node 3"),
        ("driver-not-loaded", "not offered Radeon RX 7600 series at 0000:03:00.0, driver: none"),
        ("rx7900xtx-old-card", "Radeon RX 470/480/570/580 at 0000:09:00.0, driver: amdgpu"),
        ("kfd-denied", "/dev/kfd not usable by this user (mode 0660, group 992)"),
        ("cpu-wheel", "power asleep; PCIe link not read"),
        ("mi300x-cpx", "PCI 0000:05:00.1, partition 1, device 0x74a1 revision 0x00"),
        ("strix-halo", "shared with system 112 GiB"),
        ("old-kernel", "gfx not reported by the driver"),
        ("wsl2-bridge", "librocdxg /opt/rocm/lib/librocdxg.so"),
        ("container-no-kfd", "cgroup limit 16 GiB"),
        ("mixed-libraries", "library path /opt/rocm/lib: libamdhip64.so libamdhip64.so.6"),
        ("rx9070xt-windows", "driver Windows 32.0.21025.1024"),
        ("mi300x-8", "run as root, so permissions were not tested"),
    ],
)
def test_what_is_special_is_there(recorded: Recorded, machine_name: str, words: str) -> None:
    page = render_machine(
        recorded.machine(machine_name), recorded.knowledge, width=100, colour=False
    )

    assert words in " ".join(page.split())


def test_a_value_that_is_not_kept_is_said_to_be_so(recorded: Recorded) -> None:
    odd = msgspec.structs.replace(
        recorded.machine("rx7900xtx"),
        variables=(SetVariable(name="AMD_LICENCE_KEY", value=None),),
        unread=(Unread(path="/proc/cmdline", why="Permission denied"),),
        python=None,
        torch=None,
    )

    page = render_machine(odd, recorded.knowledge, width=100, colour=False)

    assert "  AMD_LICENCE_KEY     (unknown variable; value not kept)\n" in page
    assert "  Permission denied   /proc/cmdline\n" in page
    assert "no environment found; name one with --python" in page
