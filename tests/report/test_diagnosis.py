"""The doctor's screen at every width, and its closing sentence in every case."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.diagnosis import diagnose
from rocsteady.machine.variables import SetVariable
from rocsteady.report.diagnosis import closing_sentence, render_diagnosis
from rocsteady.vocabulary import (
    Brief,
    ComputeDevice,
    Confidence,
    Diagnosis,
    Finding,
    Fix,
    Severity,
    Unchecked,
)

if TYPE_CHECKING:
    from tests.conftest import Recorded

GPU, CPU, UNKNOWN = ComputeDevice.GPU, ComputeDevice.CPU, ComputeDevice.UNKNOWN
BLOCKS, RISKS, NOTES = Severity.BLOCKS, Severity.RISKS, Severity.NOTES
COLOURS = re.compile(r"\x1b\[[\d;]*m")
OPEN = Unchecked(what="IOMMU", why="nobody says", rules=("a",))
REFUSED = Unchecked(what="/proc/cmdline", why="Permission denied")


def finding(rule: str, severity: Severity, *commands: str) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        summary="Something is so.",
        seen=(),
        fix=Fix(text="Do it.", commands=commands),
        confidence=Confidence.OFFICIAL,
        confirmed_on=(),
        sources=(),
    )


def diagnosis(
    *severities: Severity,
    on: ComputeDevice = GPU,
    gpus: tuple[str, ...] = ("Radeon",),
    torch: str = "2.9",
    unchecked: tuple[Unchecked, ...] = (),
) -> Diagnosis:
    return Diagnosis(
        version=1,
        rocsteady="0",
        machine=Brief(
            gpus=gpus, other_gpus=(), system="Linux", python="", torch=torch, torch_code=""
        ),
        findings=tuple(
            finding(f"rule-{number}", severity) for number, severity in enumerate(severities)
        ),
        unchecked=unchecked,
        trains_on=on,
        trains_on_gpus=gpus,
        facts_read=1,
        rules_checked=2,
    )


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (diagnosis(), "Nothing found here blocks training: expect it to run on Radeon."),
        (
            diagnosis(gpus=("2 x Radeon", "Instinct")),
            "Nothing found here blocks training: expect it to run on 2 x Radeon and Instinct.",
        ),
        (
            diagnosis(NOTES, NOTES),
            "Nothing found here blocks training: expect it to run on Radeon.",
        ),
        (
            diagnosis(RISKS),
            (
                "Nothing found here blocks training: expect it to run on Radeon. "
                "1 thing puts it at risk."
            ),
        ),
        (
            diagnosis(RISKS, RISKS, NOTES),
            (
                "Nothing found here blocks training: expect it to run on Radeon. "
                "2 things put it at risk."
            ),
        ),
        (
            diagnosis(unchecked=(OPEN,)),
            "As far as could be checked, nothing blocks training: expect it to run on Radeon.",
        ),
        (
            diagnosis(unchecked=(REFUSED,)),  # no rule needed it
            "Nothing found here blocks training: expect it to run on Radeon.",
        ),
        (
            diagnosis(on=CPU, gpus=()),
            "Nothing found here blocks training, and no AMD GPU is in reach: expect the CPU.",
        ),
        (
            diagnosis(on=CPU),
            (
                "Nothing found here blocks training: "
                "expect the CPU, for torch will not use the GPU as things stand."
            ),
        ),
        (
            diagnosis(on=UNKNOWN),
            "Nothing found here blocks training; which GPU it would use cannot be seen from here.",
        ),
        (
            diagnosis(RISKS, on=UNKNOWN, torch=""),
            (
                "What this machine can train on is open: no torch was examined. "
                "1 thing puts it at risk."
            ),
        ),
        (
            diagnosis(BLOCKS, on=CPU),
            (
                "1 thing keeps the AMD GPU from training: expect the CPU at best, "
                "until that is mended."
            ),
        ),
        (
            diagnosis(BLOCKS, BLOCKS, RISKS, on=CPU),
            (
                "2 things keep the AMD GPU from training: expect the CPU at best, "
                "until that is mended."
            ),
        ),
        (
            diagnosis(BLOCKS, on=UNKNOWN, torch=""),
            "1 thing keeps the AMD GPU from training, until that is mended.",
        ),
    ],
)
def test_the_closing_sentence(said: Diagnosis, sentence: str) -> None:
    assert closing_sentence(said) == sentence


def test_a_gpu_that_torch_will_not_use_is_not_out_of_reach(recorded: Recorded) -> None:
    hidden = SetVariable(name="CUDA_VISIBLE_DEVICES", value="-1")
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), variables=(hidden,))

    sentence = closing_sentence(diagnose(machine, recorded.knowledge))

    assert sentence == (
        "Nothing found here blocks training: "
        "expect the CPU, for torch will not use the GPU as things stand."
    )


def test_the_whole_screen() -> None:
    said = msgspec.structs.replace(
        diagnosis(unchecked=(OPEN, REFUSED), on=CPU),
        findings=(finding("a-block", BLOCKS, "one", "two", "three"), finding("a-note", NOTES)),
    )

    assert render_diagnosis(said, width=80, colour=False) == (
        "GPU      Radeon\n"
        "System   Linux\n"
        "torch    2.9\n"
        "Read     1 fact, 2 rules checked\n"
        "\n"
        "BLOCKS\n"
        "  a-block         Something is so.\n"
        "                    one\n"
        "                    two\n"
        "\n"
        "NOTES\n"
        "  a-note          Something is so.\n"
        "                    Do it.\n"
        "\n"
        "NOT CHECKED\n"
        "  IOMMU           nobody says (1 rule)\n"
        "  /proc/cmdline   Permission denied\n"
        "\n"
        "1 thing keeps the AMD GPU from training: expect the CPU at best, until that is\n"
        "mended.\n"
        "The whole story of one: rocsteady doctor --explain a-block\n"
    )


def test_without_torch_the_screen_says_how_to_name_the_python_that_trains() -> None:
    screen = render_diagnosis(diagnosis(on=UNKNOWN, torch=""), width=80, colour=False)

    assert screen.endswith("Name the Python that trains: rocsteady doctor --python PATH\n")


@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_line_of_prose_is_longer_than_the_page(
    recorded: Recorded, every_machine: str, width: int
) -> None:
    said = recorded.diagnosis(every_machine)
    commands = {line for each in said.findings for line in each.fix.commands}

    for line in render_diagnosis(said, width=width, colour=False).splitlines():
        one_word = len(line.split()) == 1
        assert len(line) <= width or line.strip() in commands or one_word, line


@pytest.mark.parametrize("width", [40, 80, 100])
def test_every_word_is_there_at_every_width(
    recorded: Recorded, every_machine: str, width: int
) -> None:
    said = recorded.diagnosis(every_machine)

    words = " ".join(render_diagnosis(said, width=width, colour=False).split())

    for each in said.findings:
        assert " ".join(each.summary.split()) in words
    assert closing_sentence(said) in words


@pytest.mark.parametrize("width", [40, 80, 100])
def test_colour_changes_nothing_but_colour(
    recorded: Recorded, every_machine: str, width: int
) -> None:
    said = recorded.diagnosis(every_machine)
    plain = render_diagnosis(said, width=width, colour=False)
    coloured = render_diagnosis(said, width=width, colour=True)

    assert "\x1b" not in plain
    assert "\x1b[1m" in coloured
    assert COLOURS.sub("", coloured) == plain


def test_the_screen_is_ascii_and_calm(recorded: Recorded, every_machine: str) -> None:
    screen = render_diagnosis(recorded.diagnosis(every_machine), width=80, colour=False)

    assert screen.isascii()
    assert "!" not in screen
    assert not [line for line in screen.splitlines() if line != line.rstrip()]


def test_a_person_reads_it_in_ten_seconds(recorded: Recorded, every_machine: str) -> None:
    screen = render_diagnosis(recorded.diagnosis(every_machine), width=80, colour=False)

    assert len(screen.splitlines()) <= 45
