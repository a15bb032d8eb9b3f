"""Which builds of torch are offered for a GPU, and which are known not to work on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.knowledge.gpu_names import named_gfx
from rocsteady.doctor.knowledge.values import Backing, Severity
from rocsteady.doctor.values import TorchOffer, TorchOffers
from rocsteady.doctor.wheels import torch_offers

if TYPE_CHECKING:
    from tests.conftest import Recorded


def offered(
    recorded: Recorded, gfx: str, system: str = "linux", python: str = "3.12"
) -> TorchOffers:
    machine = recorded.machine("no-amd-gpu")
    return torch_offers(machine, recorded.knowledge, gfxs=(gfx,), system=system, python=python)


def vouched_for(offer: TorchOffer) -> bool:
    return offer.backing is not Backing.BUILT


def test_a_vega_gets_rocm_6_3_and_nothing_newer_of_pytorch(recorded: Recorded) -> None:
    found = offered(recorded, "gfx906")

    of_pytorch = [offer for offer in found.offers if offer.title == "pytorch.org"]
    assert of_pytorch[0].install == (
        "pip install torch==2.7.1+rocm6.3 --index-url https://download.pytorch.org/whl/rocm6.3"
    )
    assert not any(vouched_for(offer) for offer in found.offers if offer not in of_pytorch)


def test_rdna1_gets_amds_wheels_only(recorded: Recorded) -> None:
    found = offered(recorded, "gfx1010", "windows")

    assert {offer.title for offer in found.offers if vouched_for(offer)} == {
        "AMD's wheels",
        "AMD's wheels of August 2026",
        "AMD's wheels of July 2026",
    }
    assert "torch[device-gfx1010]" in found.offers[0].install
    assert "'" not in found.offers[0].install  # cmd.exe does not know them
    assert found.left_out == {"not for windows": len(recorded.knowledge.wheels) + 1}


def test_an_override_that_windows_does_not_read_is_not_named_there(recorded: Recorded) -> None:
    assert "HSA_OVERRIDE" in offered(recorded, "gfx1031").note
    assert not offered(recorded, "gfx1031", "windows").note


def test_a_build_that_is_bad_on_one_card_names_the_one_to_take(recorded: Recorded) -> None:
    def told(gfx: str, system: str) -> set[str]:
        offers = offered(recorded, gfx, system).offers
        return {it.rule + it.summary for offer in offers for it in offer.problems}

    rule = "gfx1200-windows-7-14-1"
    assert [it for it in told("gfx1200", "windows") if rule in it and "7.14.0" in it]
    assert not [it for it in told("gfx1200", "linux") if rule in it]
    assert not [it for it in told("gfx1201", "windows") if rule in it]


def test_a_build_that_is_known_to_be_broken_says_so_and_comes_last(recorded: Recorded) -> None:
    found = offered(recorded, "gfx90a")

    *working, of_pytorch, of_amd = found.offers
    for broken in (of_pytorch, of_amd):
        assert broken.rocm == "7.14"
        assert [problem.rule for problem in broken.problems] == ["gfx90a-wheel-incomplete"]
        assert broken.problems[0].severity is Severity.BLOCKS
    assert not any(
        problem.severity is Severity.BLOCKS for offer in working for problem in offer.problems
    )


def test_a_python_that_is_too_new_or_too_old_leaves_builds_out(recorded: Recorded) -> None:
    old, new = offered(recorded, "gfx1100", python="3.9"), offered(recorded, "gfx1100")

    assert {offer.torch for offer in old.offers} == {"2.4.1", "2.5.1", "2.6.0", "2.7.1"} - {""}
    assert old.left_out["not for Python 3.9"] == len(new.offers) - len(old.offers)
    assert not offered(recorded, "gfx1100", python="3.20").offers


def test_every_architecture_that_amd_lists_has_a_build(recorded: Recorded) -> None:
    listed = {gfx for index in recorded.knowledge.indexes for gfx in index.arches}

    assert all(offered(recorded, gfx).offers for gfx in listed)
    assert not offered(recorded, "gfx803").usable()


@pytest.mark.parametrize(
    ("name", "gfx"),
    [
        ("gfx1100", "gfx1100"),
        ("GFX 1100", "gfx1100"),
        ("RX 7900 XTX", "gfx1100"),
        ("rx7900xtx", "gfx1100"),
        ("RX 7900", "gfx1100"),
        ("rx 5700 xt", "gfx1010"),
        ("RX 6600", "gfx1032"),
        ("9070XT", "gfx1201"),
        ("AMD Radeon(TM) RX 9070 XT", "gfx1201"),
        ("Radeon 780M", "gfx1103"),
        ("780m graphics", "gfx1103"),
        ("Instinct MI300X", "gfx942"),
        ("mi25", "gfx900"),
        ("MI250", "gfx90a"),
        ("W7900", "gfx1100"),
        ("Radeon VII", "gfx906"),
        ("RX 580", "gfx803"),
        ("Strix Halo", "gfx1151"),
        ("Ryzen AI Max+ 395", "gfx1151"),
        ("Ryzen AI Max 395", "gfx1151"),
        ("Steam Deck", "gfx1033"),
        ("navi 31", "gfx1100"),
    ],
)
def test_a_card_can_be_named_as_people_do(recorded: Recorded, name: str, gfx: str) -> None:
    assert named_gfx(name, recorded.knowledge) == gfx


@pytest.mark.parametrize(
    "name",
    ["", "Radeon", "RTX 4090", "gfx11000", "RX 660", "RX 7600M XT", "7700", "RDNA 3", "xt", "+"],
)
def test_what_is_no_card_or_several_is_not_guessed(recorded: Recorded, name: str) -> None:
    with pytest.raises(LookupError):
        named_gfx(name, recorded.knowledge)


LISTS = {  # TheRock RELEASES.md and AMD's table of specifications, each as it was opened
    "gfx950": "MI355X MI350X MI350P",
    "gfx942": "MI325X MI300X MI300A",
    "gfx90a": "MI250X MI250 MI210",
    "gfx908": "MI100",
    "gfx906": "MI60 MI50 VII",
    "gfx900": "MI25",
    "gfx1201": "9070 9070XT 9070GRE R9700 R9700S R9600 R9600D",
    "gfx1200": "9060 9060XT 9060XTLP",
    "gfx1153": "820M",
    "gfx1152": "860M",
    "gfx1151": "8060S",
    "gfx1150": "890M",
    "gfx1103": "780M 7840U",
    "gfx1102": "7600",
    "gfx1101": "7800XT 7700XT RX7700 V710 W7700",
    "gfx1100": "7900XTX 7900XT 7900GRE W7900 W7800",
    "gfx1030": "6950XT 6900XT 6800XT 6800 W6800 V620",
    "gfx1031": "6750XT 6700XT RX6700",
    "gfx1032": "6650XT 6600XT 6600 W6600",
    "gfx1034": "6500XT",
    "gfx1035": "680M",
    "gfx1036": "Raphael",
    "gfx1033": "VanGogh",
    "gfx1010": "5700 5700XT",
    "gfx1011": "V520",
    "gfx1012": "W5500",
}


def test_every_gpu_of_amds_lists_is_known_by_its_name(recorded: Recorded) -> None:
    for gfx, names in LISTS.items():
        assert {named_gfx(name, recorded.knowledge) for name in names.split()} == {gfx}


def test_a_gpu_that_amd_does_not_list_for_wsl_has_no_official_build_there(
    recorded: Recorded,
) -> None:
    listed, unlisted = offered(recorded, "gfx1201", "wsl"), offered(recorded, "gfx1030", "wsl")

    assert any(vouched_for(offer) for offer in listed.offers)
    assert not any(vouched_for(offer) for offer in unlisted.offers)
    assert "does not list gfx1030 for WSL" in unlisted.note


def test_a_second_gpu_of_another_architecture_counts(recorded: Recorded) -> None:
    found = torch_offers(
        recorded.machine("no-amd-gpu"),
        recorded.knowledge,
        gfxs=("gfx1100", "gfx1031"),
        system="linux",
        python="3.12",
    )

    assert "torch[device-gfx1100,device-gfx1031]" in found.offers[0].install
    of_pytorch = [offer for offer in found.offers if offer.title == "pytorch.org"]
    assert {offer.lacks for offer in of_pytorch} == {("gfx1031",)}


@pytest.mark.parametrize("gfx", ["gfx1200", "gfx1201", "gfx1100", "gfx1030"])
def test_the_newest_that_is_tested_comes_first(recorded: Recorded, gfx: str) -> None:
    found = offered(recorded, gfx)

    official = [offer for offer in found.offers if vouched_for(offer)]
    assert found.offers[: len(official)] == tuple(official)
    assert (official[0].torch, official[0].rocm) == ("2.12 to 2.14", "10.1")
    assert official[0].install == (
        f"pip install --index-url https://stable.repo.amd.com/rocm/whl-next/ 'torch[device-{gfx}]'"
    )
    of_pytorch = [(offer.torch, offer.rocm) for offer in official if offer.title == "pytorch.org"]
    assert of_pytorch[:3] == [("2.14.1", "7.14"), ("2.14.1", "7.2"), ("2.13.0", "7.2")]


def test_rdna4_with_a_rocm_from_before_its_support_has_a_risk(recorded: Recorded) -> None:
    old = [offer for offer in offered(recorded, "gfx1201").offers if offer.rocm == "6.3"]

    assert [problem.rule for offer in old for problem in offer.problems] == ["rdna4-old-rocm"]


@pytest.mark.parametrize("gfx", ["gfx900", "gfx906"])
def test_amds_wheels_for_a_vega_come_after_those_that_people_train_with(
    recorded: Recorded, gfx: str
) -> None:
    found = offered(recorded, gfx)

    assert found.offers[0].install.startswith("pip install torch==2.7.1+rocm6.3 ")
    assert all(vouched_for(offer) == (offer.title == "pytorch.org") for offer in found.offers)


@pytest.mark.parametrize("gfx", ["gfx906", "gfx90a", "gfx942", "gfx950", "gfx1250"])
@pytest.mark.parametrize("system", ["windows", "wsl"])
def test_what_amd_lists_for_linux_alone_is_offered_there_alone(
    recorded: Recorded, gfx: str, system: str
) -> None:
    assert offered(recorded, gfx).offers
    assert offered(recorded, gfx, system).offers == ()
    assert offered(recorded, gfx, system).note


@pytest.mark.parametrize(
    ("gfx", "system", "backing"),
    [
        ("gfx90a", "linux", Backing.SUPPORTED),  # MI210: AMD's page for ROCm 10.1 has its command
        ("gfx1201", "windows", Backing.SUPPORTED),
        ("gfx1030", "linux", Backing.TESTED),  # AMD lists professional cards only
        ("gfx1010", "windows", Backing.TESTED),
        ("gfx1036", "wsl", Backing.BUILT),
    ],
)
def test_the_label_says_who_vouches_for_a_build(
    recorded: Recorded, gfx: str, system: str, backing: Backing
) -> None:
    first = offered(recorded, gfx, system).offers[0]

    assert (first.title, first.backing) == ("AMD's wheels", backing)


def test_what_a_note_says_to_install_can_be_pasted(recorded: Recorded) -> None:
    on_linux, on_windows = (
        offered(recorded, "gfx1100", system).offers[0].note for system in ("linux", "windows")
    )

    assert "'torchvision[device-gfx1100]==0.29.0a0+rocm10.1.0'" in on_linux
    assert '"torchvision[device-gfx1100]==0.29.0a0+rocm10.1.0"' in on_windows


def test_pip_is_told_to_take_nightly_builds(recorded: Recorded) -> None:
    nightly = [it for it in offered(recorded, "gfx1100").offers if "nightly" in it.install]

    assert ["--pre" in it.install for it in nightly] == [True]
