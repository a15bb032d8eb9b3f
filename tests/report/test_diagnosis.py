"""The doctor's screen at every width, and its closing sentence in every case."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.diagnosis import diagnose
from rocsteady.doctor.knowledge.values import Confidence, Fix, Severity
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.values import Brief, ComputeDevice, Diagnosis, Finding, Unchecked
from rocsteady.screens.doctor import closing_sentence, in_full, render_diagnosis

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
        (diagnosis(), "No problems found. Training should work on Radeon."),
        (
            diagnosis(gpus=("2 x Radeon", "Instinct")),
            "No problems found. Training should work on 2 x Radeon and Instinct.",
        ),
        (diagnosis(NOTES, NOTES), "2 notes. Training should work on Radeon."),
        (diagnosis(RISKS), "1 risk. Training should work on Radeon."),
        (diagnosis(RISKS, RISKS, NOTES), "2 risks, 1 note. Training should work on Radeon."),
        (
            diagnosis(unchecked=(OPEN,)),
            "No problems found. Training should work on Radeon, as far as could be checked.",
        ),
        (
            diagnosis(unchecked=(REFUSED,)),  # no rule needed it
            "No problems found. Training should work on Radeon.",
        ),
        (
            diagnosis(on=CPU, gpus=()),
            "No problems found. Training will run on the CPU: no AMD GPU is available.",
        ),
        (
            diagnosis(on=CPU),
            (
                "No problems found. Training will run on the CPU: "
                "PyTorch will not use the GPU as configured."
            ),
        ),
        (
            diagnosis(on=UNKNOWN),
            (
                "No problems found. Nothing blocks training; "
                "rocsteady cannot see from here which GPU it would use."
            ),
        ),
        (
            diagnosis(RISKS, on=UNKNOWN, torch=""),
            "1 risk. No PyTorch was found, so it is unknown what this machine can train on.",
        ),
        (
            diagnosis(BLOCKS, on=CPU),
            (
                "1 problem blocks training on the AMD GPU. "
                "Until it is fixed, expect training on the CPU at best."
            ),
        ),
        (
            diagnosis(BLOCKS, BLOCKS, RISKS, on=CPU),
            (
                "2 problems block training on the AMD GPU. "
                "Until they are fixed, expect training on the CPU at best."
            ),
        ),
        (
            diagnosis(BLOCKS, on=UNKNOWN, torch=""),
            "1 problem blocks training on the AMD GPU.",
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
        "No problems found. Training will run on the CPU: "
        "PyTorch will not use the GPU as configured."
    )


def test_the_whole_screen() -> None:
    said = msgspec.structs.replace(
        diagnosis(unchecked=(OPEN, REFUSED), on=CPU),
        findings=(finding("a-block", BLOCKS, "one", "two", "three"), finding("a-note", NOTES)),
    )

    assert render_diagnosis(said, width=80, colour=False) == (
        "GPU      Radeon\n"
        "System   Linux\n"
        "PyTorch  2.9\n"
        "Checked  1 fact read, 2 rules checked\n"
        "\n"
        "BLOCK  a-block         Something is so.\n"
        "                       fix: one\n"
        "                            two\n"
        "note   a-note          Something is so.\n"
        "                       fix: Do it.\n"
        "\n"
        "Not checked\n"
        "  IOMMU                nobody says (1 rule)\n"
        "  /proc/cmdline        Permission denied\n"
        "\n"
        "1 problem blocks training on the AMD GPU. Until it is fixed, expect training on\n"
        "the CPU at best.\n"
        "Details: rocsteady doctor --explain a-block\n"
    )


def test_without_torch_the_screen_says_how_to_name_the_python_that_trains() -> None:
    screen = render_diagnosis(diagnosis(on=UNKNOWN, torch=""), width=80, colour=False)

    assert screen.endswith("To name the Python used for training: rocsteady doctor --python PATH\n")


@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_line_of_prose_is_longer_than_the_page(
    recorded: Recorded, every_machine: str, width: int
) -> None:
    said = recorded.diagnosis(every_machine)
    commands = {line for each in said.findings for line in each.fix.commands}

    for line in render_diagnosis(said, width=width, colour=False).splitlines():
        one_word = len(line.split()) == 1
        command = line.strip().removeprefix("fix: ") in commands
        assert len(line) <= width or command or one_word, line


@pytest.mark.parametrize("width", [40, 80, 100])
def test_every_word_is_there_at_every_width(
    recorded: Recorded, every_machine: str, width: int
) -> None:
    said = recorded.diagnosis(every_machine)

    words = " ".join(render_diagnosis(said, width=width, colour=False).split())

    shown, named = in_full(said)
    for each in shown:
        assert " ".join(each.summary.split()) in words
    for each in named:
        assert each.rule in words
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
