"""``rocsteady wheels`` from the outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady


def test_what_is_not_named_is_that_of_the_machine(cli: Rocsteady) -> None:
    shown = cli("wheels", "--root", cli.machine("rx7900xtx"))

    assert shown.code == 0
    assert shown.out.startswith("Builds of torch for gfx1100 on linux, Python 3.12\n")


def test_json_has_the_same_builds(cli: Rocsteady) -> None:
    told = cli("wheels", "--gpu", "gfx1031", "--os", "windows", "--python", "3.12", "--json")

    found = json.loads(told.out)

    assert (told.code, found["version"], found["gfx"]) == (0, 1, "gfx1031")
    assert all(offer["sources"] for offer in found["offers"])


def test_no_build_is_1_no_gpu_is_3_and_a_wrong_name_is_2(cli: Rocsteady) -> None:
    assert cli("wheels", "--gpu", "gfx803", "--os", "linux").code == 1
    without = cli("wheels", "--root", cli.machine("no-amd-gpu"))
    assert without.code == 3
    assert "--gpu gfx1100" in without.err
    assert "Did you mean 'gfx1100'?" in cli("wheels", "--gpu", "gfx11000").err
    assert cli("wheels", "--gpu", "gfx1100", "--python", "three").code == 2
    assert cli("wheels", "--gpu", "gfx1100", "--os", "beos").code == 2
