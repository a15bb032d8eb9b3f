"""``rocsteady doctor wheels`` from the outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady


def test_what_is_not_named_is_that_of_the_machine(cli: Rocsteady) -> None:
    shown = cli("doctor", "wheels", "--root", cli.machine("rx7900xtx"))

    assert shown.code == 0
    assert shown.out.startswith("torch builds for gfx1100 on linux, Python 3.12\n")


def test_json_has_the_same_builds(cli: Rocsteady) -> None:
    told = cli(
        "doctor", "wheels", "--gpu", "gfx1031", "--os", "windows", "--python", "3.12", "--json"
    )

    found = json.loads(told.out)

    assert (told.code, found["version"], found["gfx"]) == (0, 1, "gfx1031")
    assert all(offer["sources"] for offer in found["offers"])


def test_no_build_is_1_no_gpu_is_3_and_a_wrong_name_is_2(cli: Rocsteady) -> None:
    assert cli("doctor", "wheels", "--gpu", "gfx803", "--os", "linux").code == 1
    without = cli("doctor", "wheels", "--root", cli.machine("no-amd-gpu"))
    assert without.code == 3
    assert "--gpu gfx1100" in without.err
    dropped = cli("doctor", "wheels", "--gpu", "RX 580", "--os", "linux").out
    assert "ROCm 4.0" in " ".join(dropped.split())
    assert (
        "Did you mean 'Radeon RX 7600 XT'?" in cli("doctor", "wheels", "--gpu", "RX 7600M XT").err
    )
    assert "Did you mean 'gfx1100'?" in cli("doctor", "wheels", "--gpu", "gfx11000").err
    assert cli("doctor", "wheels", "--gpu", "gfx1100", "--python", "three").code == 2
    assert cli("doctor", "wheels", "--gpu", "gfx1100", "--os", "beos").code == 2


def test_both_architectures_of_a_machine_are_named(cli: Rocsteady) -> None:
    shown = cli("doctor", "wheels", "--all", "--root", cli.machine("rx7900xtx-rx6700xt"))

    assert shown.out.startswith("torch builds for gfx1100 and gfx1031 on linux")
    assert "No code for gfx1031." in shown.out


def test_several_gpus_can_be_named(cli: Rocsteady) -> None:
    gpus = ("--gpu", "RX 7900 XTX", "--gpu", "gfx1031")
    shown = cli("doctor", "wheels", "--all", *gpus, "--os", "linux")

    assert shown.out.startswith("torch builds for gfx1100 and gfx1031 on linux")
    assert "torch[device-gfx1100,device-gfx1031]" in shown.out
    assert "No code for gfx1031." in shown.out
    assert "'gfx9999'" in cli("doctor", "wheels", "--gpu", "gfx1100", "--gpu", "gfx9999").err


def test_an_override_that_stands_in_is_named_where_the_builds_are(cli: Rocsteady) -> None:
    shown = cli("doctor", "wheels", "--gpu", "gfx1031", "--os", "linux")

    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0" in shown.out
    assert "AMD does not support that" in " ".join(shown.out.split())


def test_the_names_can_be_listed(cli: Rocsteady) -> None:
    listed = cli("doctor", "wheels", "--list")

    assert listed.code == 0
    assert "gfx1102   RDNA 3, Navi 33; tested on linux and windows." in listed.out
    assert "gfx906    Vega 20 (GCN 5.1); tested on linux, torch up to 2.7.1." in listed.out
    assert "gfx908    CDNA; tested on linux. Instinct MI100" in listed.out
    assert "gfx1033   RDNA 2, Van Gogh; not recommended." in listed.out
