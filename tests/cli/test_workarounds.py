"""``rocsteady explain`` about workarounds, seen from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rocsteady.cli.explain import _remedy_page
from rocsteady.failures.remedy import load_remedies
from rocsteady.screens.screen import Page

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady


def test_it_lists_every_remedy_with_what_it_costs_cheapest_first(cli: Rocsteady) -> None:
    told = cli("explain", "--workarounds")

    ids = [line.split()[0] for line in told.out.splitlines() if line[:1].islower()]
    assert (told.code, told.err) == (0, "")
    assert ids == [*load_remedies(), "rocsteady"]
    assert told.out.count("Cost: ") == len(load_remedies())
    assert max(map(len, told.out.splitlines())) <= 80


def test_it_explains_one(cli: Rocsteady) -> None:
    told = cli("explain", "hipblaslt-off")

    page = " ".join(told.out.split())
    assert told.code == 0
    assert "ROCm/TheRock#7699" in page
    assert "gfx1100 with torch 2.8 for ROCm 6.3" in page
    assert "Not confirmed on hardware" in page


@pytest.mark.parametrize("remedy", sorted(load_remedies()))
def test_a_page_has_all_that_is_known_of_a_remedy_in_80_columns(remedy: str) -> None:
    about = load_remedies()[remedy]

    page = _remedy_page(about, Page(80, colour=False))

    words = " ".join(page.split())
    assert all(text in words for text in (about.cost, about.when_not, *about.sources))
    assert max(map(len, page.splitlines())) <= 80


def test_the_variables_that_would_be_unset_are_explained_too(cli: Rocsteady) -> None:
    told = cli("explain", "unset-variable")

    assert "  PYTORCH_NO_HIP_MEMORY_CACHING\n" in told.out


def test_a_preview_on_a_recorded_machine(cli: Rocsteady) -> None:
    told = cli("explain", "--workarounds", "hang-in-backward", "--root", cli.machine("rx9070xt"))

    lines = told.out.splitlines()
    tried = [line.split()[1] for line in lines if line[2:3].isdecimal()]
    assert (told.code, told.err) == (0, "")
    assert tried == [
        "retry",
        "hipblaslt-off",
        "interrupts-off",
        "rocblas-alone",
        "attention-math",
        "cpu",
    ]
    assert "    gfx-override-off      HSA_OVERRIDE_GFX_VERSION is not set." in lines
    assert max(map(len, lines)) <= 80


def test_the_same_preview_on_a_machine_with_another_gpu_is_another(cli: Rocsteady) -> None:
    told = cli(
        "explain", "--json", "--workarounds", "hang-in-backward", "--root", cli.machine("rx7900xtx")
    )

    preview = json.loads(told.out)
    passed_over = {entry["workaround"]: entry["why"] for entry in preview["skipped"]}
    assert [step["workaround"] for step in preview["tried"]] == [
        "retry",
        "interrupts-off",
        "attention-math",
        "cpu",
    ]
    assert preview["tried"][1]["strategy"] == {"variables": {"HSA_ENABLE_INTERRUPT": "0"}}
    assert passed_over["hipblaslt-off"] == "hipBLASLt is not the default on gfx1100"


@pytest.mark.parametrize(
    ("machine", "kind", "remedies"),
    [
        ("rx9070xt-windows", "gpu-reset", ["retry", "hipblaslt-off", "cpu"]),
        ("nvidia-card", "oom-fragmentation", ["retry", "allocator-expandable"]),
        ("wsl2", "hang-lost-interrupt", ["retry", "interrupts-off", "cpu"]),
        ("mi300x-8", "hang-in-collective", ["retry", "p2p-off", "single-gpu"]),
        ("rx5700xt-override", "machine-went-down", ["cpu"]),
        ("no-amd-gpu", "hang-in-loader", ["retry", "loader-forkserver", "loader-inline"]),
    ],
)
def test_what_a_preview_knows_of_a_machine(
    cli: Rocsteady, machine: str, kind: str, remedies: list[str]
) -> None:
    told = cli("explain", "--json", "--workarounds", kind, "--root", cli.machine(machine))

    steps = json.loads(told.out)["tried"]
    assert [step["workaround"] for step in steps][: len(remedies)] == remedies


def test_where_a_person_is_needed_it_says_what_to_do(cli: Rocsteady) -> None:
    told = cli("explain", "--workarounds", "disk-error")

    assert told.code == 0
    assert "this needs a person" in " ".join(told.out.split())
    assert json.loads(cli("explain", "--json", "--workarounds", "disk-error").out)["person"]["text"]


def test_what_nothing_is_known_against_is_said_to_be_so(cli: Rocsteady) -> None:
    assert "Nothing would be tried" in cli("explain", "--workarounds", "script-error").out


def test_json_of_the_list_has_all_of_each(cli: Rocsteady) -> None:
    remedies = json.loads(cli("explain", "--workarounds", "--json").out)["workarounds"]

    assert [each["id"] for each in remedies] == list(load_remedies())
    assert all(each["sources"] and each["answers"] for each in remedies)
    one = json.loads(cli("explain", "--json", "cpu").out)["workaround"]
    assert one == remedies[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("loader-inlin",), "Did you mean 'loader-inline'?"),
        (("--workarounds", "hang-in-loder"), "Did you mean 'hang-in-loader'?"),
        (("--workarounds", "hang", "--root", "nowhere.json"), "nowhere.json"),
        (("hang", "--root", "."), "need --workarounds"),
        (("--workarounds", "--python", "python3"), "need --workarounds"),
        ((), "TEXT"),
    ],
)
def test_wrong_usage_is_2(cli: Rocsteady, arguments: tuple[str, ...], said: str) -> None:
    ended = cli("explain", *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_a_failure_is_explained_by_its_id_and_names_its_workarounds(cli: Rocsteady) -> None:
    told = json.loads(cli("explain", "--json", "hang-in-loader").out)

    assert told["failure"]["kind"] == "hang-in-loader"
    assert "loader-inline" in told["workarounds"]
    assert "loader-inline" in cli("explain", "hang-in-loader").out
    assert json.loads(cli("explain", "--json", "disk-full").out)["workarounds"] == []


def test_this_machine_can_be_asked(cli: Rocsteady) -> None:
    assert cli("explain", "--workarounds", "oom-host").code == 0
