"""Options that cannot be tried here: what the file has, where one applies, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.options import (
    OperatingSystem,
    OtherOption,
    answers,
    impossible_because,
    load_other_options,
    wheels_for,
)
from rocsteady.doctor.knowledge.reader import DATA, DataFolder
from rocsteady.model import Risk

if TYPE_CHECKING:
    from rocsteady.doctor.knowledge.reader import Knowledge

OPTIONS = {option.id: option for option in load_other_options()}
KINDS = load_failures().kinds

each_option = pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.id)

OPTION = (
    '[[option]]\nid = "a"\ntitle = "A"\nverdict = "It may."\nrisk = "low"\n'
    'sources = ["amd-mgpu"]\nconfidence = "official"\n'
)


def folder_with(tmp_path: Path, option: str) -> Path:
    shutil.copy(DATA / "sources.toml", tmp_path)
    (tmp_path / "options.toml").write_text(option)
    return tmp_path


def named(
    system: OperatingSystem, gfx: str | None, gpus: int, *, failures: set[str], findings: set[str]
) -> dict[str, str]:
    """Return the options worth naming that are not advised against, and why they are impossible."""
    why = {it.id: impossible_because(it, os=system, gfx=gfx, gpus=gpus) for it in OPTIONS.values()}
    return {
        option.id: why[option.id]
        for option in OPTIONS.values()
        if not option.against and answers(option, failures | findings, possible=not why[option.id])
    }


@each_option
def test_what_an_option_answers_and_where_it_is_had_are_known_words(
    option: OtherOption, knowledge: Knowledge
) -> None:
    gfx = {*option.never, *(each for place in option.where for each in place.gfx)}

    assert set(option.failures) <= set(KINDS)
    assert set(option.findings) <= set(knowledge.rules)
    assert gfx <= set(knowledge.arches)
    for words in (option.failures, option.findings, option.sources, option.never):
        assert len(set(words)) == len(words)


@each_option
def test_an_option_that_windows_does_not_have_cites_no_page_about_windows(
    option: OtherOption,
) -> None:
    systems = {system for place in option.where for system in place.os}
    if systems == {OperatingSystem.LINUX}:
        assert [key for key in option.sources if "windows" in key] == []


@each_option
def test_every_text_is_plain_and_short(option: OtherOption) -> None:
    for text in (option.title, option.verdict, option.changes, option.note):
        assert text.isascii()
        assert "!" not in text
    assert len(option.title) <= 60
    assert not option.title.endswith(".")
    assert option.verdict.endswith(".")
    assert len(option.verdict) <= 300
    assert not option.changes.endswith(".")


@each_option
def test_minutes_are_those_of_a_note(option: OtherOption) -> None:
    assert option.setup is None or option.setup_by.startswith("field-note-")


@each_option
def test_what_is_advised_against_is_a_high_risk(option: OtherOption) -> None:
    assert not option.against or option.risk is Risk.HIGH


def test_a_wheel_of_pytorch_is_had_for_what_some_release_contains(knowledge: Knowledge) -> None:
    had = {gfx for wheel in knowledge.wheels for gfx in wheel.arches}

    assert set(OPTIONS["wheel-pytorch"].where[0].gfx) == had


def test_a_tested_wheel_of_amd_is_not_called_untested_as_well() -> None:
    tested, untested = OPTIONS["wheel-multi-arch"], OPTIONS["wheel-multi-arch-untested"]

    for system in OperatingSystem:
        both = [
            {gfx for place in option.where if system in place.os for gfx in place.gfx}
            for option in (tested, untested)
        ]
        assert both[0].isdisjoint(both[1])


def test_note_a_hears_of_wsl_and_linux_and_not_of_a_tested_wheel() -> None:
    options = named(
        OperatingSystem.WINDOWS,
        "gfx1201",
        1,
        failures={"hang-in-backward"},
        findings={"windows-training-unsupported"},
    )

    assert options["wsl2"] == options["dual-boot"] == options["cloud"] == ""
    assert options["wheel-multi-arch-untested"] == ""
    assert options["wheel-multi-arch"] == "there is none for gfx1201 on Windows"
    assert options["wheel-pytorch"] == "this is Windows"
    assert OPTIONS["wsl2"].setup == (30, 60)


def test_note_b_hears_of_the_container_and_of_ddp_as_a_change() -> None:
    options = named(
        OperatingSystem.LINUX,
        "gfx1100",
        2,
        failures={"blas-handle-failed"},
        findings={"mixed-rocm-libraries"},
    )

    assert options["container"] == options["ddp"] == ""
    assert "DistributedDataParallel" in OPTIONS["ddp"].changes
    assert "wsl2" not in options


def test_note_d_hears_of_less_memory_and_of_other_frameworks_as_a_risk() -> None:
    options = named(
        OperatingSystem.LINUX, "gfx1100", 1, failures={"oom-fragmentation"}, findings=set()
    )

    less_memory = {"gradient-checkpointing", "bf16-autocast"}
    assert set(options) == {"cloud", *less_memory, "tensorflow", "jax"}
    assert "numbers differ" in OPTIONS["bf16-autocast"].changes
    assert {OPTIONS[each].risk for each in ("tensorflow", "jax")} == {Risk.HIGH}


def test_note_e_hears_of_the_cloud_and_of_amds_wheel() -> None:
    options = named(
        OperatingSystem.LINUX,
        "gfx1010",
        1,
        failures={"machine-went-down"},
        findings={"gfx1010-status", "wheel-lacks-arch"},
    )

    assert options == {
        "cloud": "",
        "wheel-pytorch": "there is none for gfx1010 on Linux",
        "wheel-multi-arch": "",
    }


def test_a_rented_gpu_is_worth_a_thought_where_nothing_is_wrong() -> None:
    for system in OperatingSystem:
        for gfx, gpus in (("gfx1100", 1), (None, 0)):
            assert named(system, gfx, gpus, failures=set(), findings=set()) == {"cloud": ""}


def test_wsl_is_ruled_out_where_there_is_no_windows() -> None:
    options = named(
        OperatingSystem.LINUX, "gfx1100", 1, failures={"hang-in-backward"}, findings=set()
    )

    assert options["wsl2"] == "this is Linux"


def test_several_gpus_are_asked_for_where_they_are_needed() -> None:
    fsdp = OPTIONS["fsdp"]

    assert impossible_because(fsdp, os=OperatingSystem.LINUX, gfx="gfx1100", gpus=2) == ""
    assert "needs 2 GPUs, 1 here" in impossible_because(
        fsdp, os=OperatingSystem.LINUX, gfx="gfx1100", gpus=1
    )
    assert "none here" in impossible_because(fsdp, os=OperatingSystem.LINUX, gfx=None, gpus=0)


def test_a_gpu_that_is_not_known_rules_nothing_out() -> None:
    for option in OPTIONS.values():
        for place in option.where:
            assert impossible_because(option, os=place.os[0], gfx=None, gpus=2) == ""


def test_integrated_gpus_have_no_rccl() -> None:
    assert impossible_because(OPTIONS["ddp"], os=OperatingSystem.LINUX, gfx="gfx1103", gpus=2)


def test_wheels_for_a_gpu_are_the_newest_first(knowledge: Knowledge) -> None:
    found = [wheel.torch for wheel in wheels_for("gfx1201", knowledge.wheels)]

    assert found[0] == knowledge.wheels[-1].torch
    assert found[-1] == ">=2.7,<2.8"
    assert wheels_for("gfx1010", knowledge.wheels) == ()


def test_a_file_is_read(tmp_path: Path) -> None:
    option = load_other_options(DataFolder(folder_with(tmp_path, OPTION)))[0]

    assert option.risk is Risk.LOW
    assert option.where == ()
    assert answers(option, (), possible=True)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (OPTION.replace("It may.", ""), ("options.toml", "a", "verdict")),
        (OPTION.replace('["amd-mgpu"]', "[]"), ("options.toml", "a", "sources")),
        (OPTION.replace("amd-mgpu", "nobody"), ("options.toml", "a", "nobody")),
        (OPTION.replace('"low"', '"none"'), ("options.toml", "a", "risk")),
        (OPTION + "setup = [30, 60]\n", ("options.toml", "a", "setup_by")),
        (OPTION + 'setup = [60, 30]\nsetup_by = "amd-mgpu"\n', ("options.toml", "a", "setup")),
        (OPTION + 'setup = [30, 60]\nsetup_by = "me"\n', ("options.toml", "a", "setup_by", "me")),
        (OPTION + "gpus = -1\n", ("options.toml", "a", "gpus")),
        (OPTION + "where = [{ os = [] }]\n", ("options.toml", "a", "where")),
        (OPTION + 'where = [{ os = ["mac"] }]\n', ("options.toml", "a", "where")),
        (OPTION.replace('id = "a"', 'id = "A B"'), ("options.toml", "id")),
        (OPTION + OPTION, ("options.toml", "a", "taken")),
        (OPTION + "speed = 1\n", ("options.toml", "a", "speed")),
    ],
)
def test_a_wrong_option_is_listed_by_file_entry_and_field(
    tmp_path: Path, text: str, names: tuple[str, ...]
) -> None:
    data = DataFolder(folder_with(tmp_path, text))

    load_other_options(data)

    assert len(data.ignored) == 1
    assert all(name in data.ignored[0] for name in names), data.ignored
