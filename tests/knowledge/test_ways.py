"""Ways that cannot be tried here: what the file has, where one applies, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.errors import KnowledgeError
from rocsteady.knowledge.failures import load_failures
from rocsteady.knowledge.reader import DATA
from rocsteady.knowledge.ways import (
    OtherWay,
    System,
    answers,
    impossible_because,
    load_other_ways,
    wheels_for,
)
from rocsteady.plan import Risk

if TYPE_CHECKING:
    from rocsteady.knowledge.reader import Knowledge

WAYS = {way.id: way for way in load_other_ways()}
KINDS = load_failures().kinds

each_way = pytest.mark.parametrize("way", WAYS.values(), ids=lambda way: way.id)

WAY = (
    '[[way]]\nid = "a"\ntitle = "A"\nverdict = "It may."\nrisk = "low"\n'
    'sources = ["amd-mgpu"]\nconfidence = "official"\n'
)


def folder_with(tmp_path: Path, way: str) -> Path:
    shutil.copy(DATA / "sources.toml", tmp_path)
    (tmp_path / "ways.toml").write_text(way)
    return tmp_path


def named(
    system: System, gfx: str | None, gpus: int, *, failures: set[str], findings: set[str]
) -> dict[str, str]:
    """Return the ways worth naming that are not advised against, and why they are impossible."""
    return {
        way.id: impossible_because(way, os=system, gfx=gfx, gpus=gpus)
        for way in WAYS.values()
        if not way.against
        and answers(way, os=system, gfx=gfx, gpus=gpus, failures=failures, findings=findings)
    }


@each_way
def test_what_a_way_answers_and_where_it_is_had_are_known_words(
    way: OtherWay, knowledge: Knowledge
) -> None:
    gfx = {*way.never, *(each for place in way.where for each in place.gfx)}

    assert set(way.failures) <= set(KINDS)
    assert set(way.findings) <= set(knowledge.rules)
    assert gfx <= set(knowledge.arches)
    for words in (way.failures, way.findings, way.sources, way.never):
        assert len(set(words)) == len(words)


@each_way
def test_every_text_is_plain_and_short(way: OtherWay) -> None:
    for text in (way.title, way.verdict, way.changes, way.note):
        assert text.isascii()
        assert "!" not in text
    assert len(way.title) <= 60
    assert not way.title.endswith(".")
    assert way.verdict.endswith(".")
    assert len(way.verdict) <= 300
    assert not way.changes.endswith(".")


@each_way
def test_minutes_are_those_of_a_note(way: OtherWay) -> None:
    assert way.setup is None or way.setup_by.startswith("field-note-")


@each_way
def test_what_is_advised_against_is_a_high_risk(way: OtherWay) -> None:
    assert not way.against or way.risk is Risk.HIGH


def test_what_no_source_bears_out_is_not_repeated() -> None:
    texts = " ".join(f"{way.title} {way.verdict} {way.note}" for way in WAYS.values())

    for folklore in ("95 %", "99 %", "HCCL", "inference only", "dropped", "2.9"):
        assert folklore not in texts
    assert "does train" in WAYS["directml"].verdict
    assert "has no source" in WAYS["data-parallel"].verdict


def test_a_wheel_of_pytorch_is_had_for_what_some_release_contains(
    knowledge: Knowledge,
) -> None:
    had = {gfx for wheel in knowledge.wheels for gfx in wheel.arches}

    assert set(WAYS["wheel-pytorch"].where[0].gfx) == had


def test_a_tested_wheel_of_amd_is_not_called_untested_as_well() -> None:
    tested, untested = WAYS["wheel-multi-arch"], WAYS["wheel-multi-arch-untested"]

    for system in System:
        both = [
            {gfx for place in way.where if system in place.os for gfx in place.gfx}
            for way in (tested, untested)
        ]
        assert both[0].isdisjoint(both[1])


def test_note_a_hears_of_wsl_and_linux_and_not_of_a_tested_wheel() -> None:
    ways = named(
        System.WINDOWS,
        "gfx1201",
        1,
        failures={"hang-in-backward"},
        findings={"windows-training-unsupported"},
    )

    assert ways["wsl2"] == ways["dual-boot"] == ways["cloud"] == ""
    assert ways["wheel-multi-arch-untested"] == ""
    assert ways["wheel-multi-arch"] == "there is none for gfx1201 on Windows"
    assert ways["wheel-pytorch"] == "this is Windows"
    assert WAYS["wsl2"].setup == (30, 60)


def test_note_b_hears_of_the_container_and_of_ddp_as_a_change() -> None:
    ways = named(
        System.LINUX,
        "gfx1100",
        2,
        failures={"blas-handle-failed"},
        findings={"mixed-rocm-libraries"},
    )

    assert ways["container"] == ways["ddp"] == ""
    assert "DistributedDataParallel" in WAYS["ddp"].changes
    assert "wsl2" not in ways


def test_note_d_hears_of_less_memory_and_of_other_frameworks_as_a_risk() -> None:
    ways = named(System.LINUX, "gfx1100", 1, failures={"oom-fragmentation"}, findings=set())

    assert set(ways) == {"cloud", "gradient-checkpointing", "tensorflow", "jax"}
    assert {WAYS[each].risk for each in ("tensorflow", "jax")} == {Risk.HIGH}


def test_note_e_hears_of_the_cloud_and_of_amds_wheel() -> None:
    ways = named(
        System.LINUX,
        "gfx1010",
        1,
        failures={"machine-went-down"},
        findings={"gfx1010-status", "wheel-lacks-arch"},
    )

    assert ways == {
        "cloud": "",
        "wheel-pytorch": "there is none for gfx1010 on Linux",
        "wheel-multi-arch": "",
    }


def test_a_rented_gpu_is_worth_a_thought_where_nothing_is_wrong() -> None:
    for system in System:
        for gfx, gpus in (("gfx1100", 1), (None, 0)):
            assert named(system, gfx, gpus, failures=set(), findings=set()) == {"cloud": ""}


def test_wsl_is_ruled_out_where_there_is_no_windows() -> None:
    ways = named(System.LINUX, "gfx1100", 1, failures={"hang-in-backward"}, findings=set())

    assert ways["wsl2"] == "this is Linux"


def test_several_gpus_are_asked_for_where_they_are_needed() -> None:
    fsdp = WAYS["fsdp"]

    assert impossible_because(fsdp, os=System.LINUX, gfx="gfx1100", gpus=2) == ""
    assert "needs 2 GPUs, 1 here" in impossible_because(
        fsdp, os=System.LINUX, gfx="gfx1100", gpus=1
    )
    assert "none here" in impossible_because(fsdp, os=System.LINUX, gfx=None, gpus=0)


def test_a_gpu_that_is_not_known_rules_nothing_out() -> None:
    for way in WAYS.values():
        for place in way.where:
            assert impossible_because(way, os=place.os[0], gfx=None, gpus=2) == ""


def test_integrated_gpus_have_no_rccl() -> None:
    assert impossible_because(WAYS["ddp"], os=System.LINUX, gfx="gfx1103", gpus=2)


def test_wheels_for_a_gpu_are_the_newest_first(knowledge: Knowledge) -> None:
    found = [wheel.torch for wheel in wheels_for("gfx1201", knowledge.wheels)]

    assert found[0] == knowledge.wheels[-1].torch
    assert found[-1] == ">=2.7,<2.8"
    assert wheels_for("gfx1010", knowledge.wheels) == ()


def test_a_file_is_read(tmp_path: Path) -> None:
    way = load_other_ways(folder_with(tmp_path, WAY))[0]

    assert way.risk is Risk.LOW
    assert way.where == ()
    assert answers(way, os=System.WSL, gfx=None, gpus=1, failures=(), findings=())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (WAY.replace("It may.", ""), ("ways.toml", "a", "verdict")),
        (WAY.replace('["amd-mgpu"]', "[]"), ("ways.toml", "a", "sources")),
        (WAY.replace("amd-mgpu", "nobody"), ("ways.toml", "a", "nobody")),
        (WAY.replace('"low"', '"none"'), ("ways.toml", "a", "risk")),
        (WAY + "setup = [30, 60]\n", ("ways.toml", "a", "setup_by")),
        (WAY + 'setup = [60, 30]\nsetup_by = "amd-mgpu"\n', ("ways.toml", "a", "setup")),
        (WAY + 'setup = [30, 60]\nsetup_by = "me"\n', ("ways.toml", "a", "setup_by", "me")),
        (WAY + "gpus = -1\n", ("ways.toml", "a", "gpus")),
        (WAY + "where = [{ os = [] }]\n", ("ways.toml", "a", "where")),
        (WAY + 'where = [{ os = ["mac"] }]\n', ("ways.toml", "a", "where")),
        (WAY.replace('id = "a"', 'id = "A B"'), ("ways.toml", "id")),
        (WAY + WAY, ("ways.toml", "a", "taken")),
        (WAY + "speed = 1\n", ("ways.toml", "a", "speed")),
    ],
)
def test_a_wrong_way_is_refused_by_file_entry_and_field(
    tmp_path: Path, text: str, names: tuple[str, ...]
) -> None:
    with pytest.raises(KnowledgeError) as refused:
        load_other_ways(folder_with(tmp_path, text))

    assert all(name in str(refused.value) for name in names), refused.value
