"""The guide is for this GPU, types only commands that exist, and gives no steps for others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from rocsteady.plan.exports.export import Export
from rocsteady.plan.exports.targets import LISTED, TARGETS

EXIST = {  # in PowerShell of Windows 11, in Ubuntu 24.04, or installed by the guide
    "powershell": {"wsl"},
    "bash": {
        ".",
        "cd",
        "cp",
        "export",
        "grep",
        "ldconfig",
        "ls",
        "mkdir",
        "python3",
        "rocsteady",
        "sudo",
        "unset",
        "wget",
    },
}
WITH_SUDO = {"apt-get", "ldconfig"}


def guide(export: Export) -> str:
    return TARGETS["wsl2"](export)["wsl2-guide.md"]


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("gfx", LISTED)
def test_every_command_exists(an_export: Callable[..., Export], gfx: str) -> None:
    found = blocks(guide(an_export(gfx=gfx, gpu=f"AMD Radeon {LISTED[gfx][0]}")))

    assert [language for language, _ in found] == ["powershell", *["bash"] * 5]
    for language, code in found:
        for part in re.split(r"\n| \| ", code.strip()):
            first, second, *_ = [*shlex.split(part), ""]
            assert first in EXIST[language], part
            assert first != "sudo" or second in WITH_SUDO, part


def test_the_wheel_is_the_one_for_the_gpu(an_export: Callable[..., Export]) -> None:
    text = guide(an_export(gfx="gfx1201", gpu="AMD Radeon RX 9070 XT"))

    assert "'torch[device-gfx1201]==2.12.0+rocm7.14.1'" in text
    assert "AMD lists it for WSL" in text
    assert "rocsteady doctor" in text


@pytest.mark.parametrize(
    ("gfx", "gpu", "says"),
    [
        ("gfx1101", "AMD Radeon RX 7800 XT", "AMD lists it for WSL"),
        ("gfx1101", "AMD Radeon RX 7700 XT", "It does not name AMD Radeon RX 7700 XT"),
        ("gfx1101", "AMD Radeon RX 7700 XT", "microsoft/WSL#40464"),
        ("gfx1200", "AMD Radeon RX 9060 XT", "librocdxg#22"),
    ],
)
def test_it_says_what_amd_names_and_what_users_report(
    an_export: Callable[..., Export], gfx: str, gpu: str, says: str
) -> None:
    assert says in guide(an_export(gfx=gfx, gpu=gpu))


@pytest.mark.parametrize("gfx", ["gfx1010", "gfx1030", "gfx1102", ""])
def test_a_gpu_that_amd_does_not_list_gets_no_steps(
    an_export: Callable[..., Export], gfx: str
) -> None:
    text = guide(an_export(gfx=gfx, gpu="another"))

    assert "AMD does not list" in text
    assert blocks(text) == []


def test_names_and_paths_are_no_markup(an_export: Callable[..., Export]) -> None:
    text = guide(an_export(checkpoints=("a_b/*.pt", "c\n# d`"), gpu="<b>", torch="2.8.0_x"))

    assert r"a\_b/\*.pt, c\x0a# d\`" in text
    assert r"\<b\>" in text
    assert r"(here it is 2.8.0\_x)" in text
