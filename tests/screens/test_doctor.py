"""The doctor's screens at every width: a diagnosis, a machine's facts, rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.diagnosis import diagnose
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.values import steps_in_order
from rocsteady.screens.doctor import (
    render_diagnosis,
    render_paste,
    render_rule,
    typed,
)
from rocsteady.screens.screen import Page

if TYPE_CHECKING:
    from tests.conftest import Recorded

COLOURS = re.compile(r"\x1b\[[\d;]*m")
WIDTHS = pytest.mark.parametrize("width", [40, 80, 100])


def check_page(plain: str, coloured: str, width: int, commands: set[str]) -> None:
    """Check that a page is calm, no wider than it may be, and the same in colour."""
    assert plain.isascii()
    assert "\x1b[" in coloured
    assert COLOURS.sub("", coloured).replace("\u2713", "+").replace("\u2717", "x") == plain
    for line in plain.splitlines():
        assert line == line.rstrip()
        copied = line[14:].strip().removeprefix("fix: ").removeprefix("check: ") in commands
        copied = copied or line.strip().removeprefix("fix: ").removeprefix("check: ") in commands
        copied = copied or line.strip().partition(". ")[2] in commands  # of a list
        assert len(line) <= width or copied or len(line.split()[-1]) > width // 2, line


@WIDTHS
def test_a_diagnosis_fits_and_has_every_word(
    recorded: Recorded, every_machine: str, width: int
) -> None:
    diagnosis = recorded.diagnosis(every_machine)
    plain = render_diagnosis(diagnosis, page=Page(width, colour=False))
    commands = {
        line for each in diagnosis.findings for line in (*each.fix.commands, *each.fix.check)
    }

    check_page(plain, render_diagnosis(diagnosis, page=Page(width, colour=True)), width, commands)

    words = " ".join(plain.split())
    told = [each for each in diagnosis.findings if each.severity is not Severity.NOTES]
    assert all(each.rule in words for each in told)
    whole = render_diagnosis(diagnosis, page=Page(width, colour=False), everything=True)
    assert all(each.rule in whole for each in diagnosis.findings)


@WIDTHS
def test_no_risk_is_folded(recorded: Recorded, every_machine: str, width: int) -> None:
    diagnosis = recorded.diagnosis(every_machine)
    screen = " ".join(render_diagnosis(diagnosis, page=Page(width, colour=False)).split())

    for each in (*diagnosis.having(Severity.BLOCKS), *diagnosis.having(Severity.RISKS)):
        assert " ".join(each.summary.split(". ")[0].split()) in screen


def test_each_step_is_listed_once_and_one_torch_is_installed(recorded: Recorded) -> None:
    override = "unset HSA_OVERRIDE_GFX_VERSION"
    index = "--index-url https://stable.repo.amd.com/rocm/whl-next/"
    torch = f"pip install --force-reinstall {index} 'torch[device-gfx1010]'"

    steps = steps_in_order(recorded.diagnosis("rx5700xt-override").findings)

    assert steps[:3] == (override, torch, "export AMDGCN_USE_BUFFER_OPS=0")
    assert len(set(steps)) == len(steps)


def test_a_restart_comes_after_what_it_is_for(recorded: Recorded) -> None:
    steps = steps_in_order(recorded.diagnosis("mi210-8").having(Severity.RISKS))

    assert steps[-2:] == ("sudo update-grub", "reboot")


def test_a_single_fix_stays_at_its_finding(recorded: Recorded) -> None:
    diagnosis = recorded.diagnosis("rx6900xt-igpu")

    screen = render_diagnosis(diagnosis, page=Page(80, colour=False))
    assert "fix: export ROCR_" in screen
    assert "Do this" not in screen


def test_a_block_for_an_issue_is_fenced_and_short(recorded: Recorded, every_machine: str) -> None:
    block = render_paste(recorded.diagnosis(every_machine)).splitlines()

    assert (block[0], block[-1]) == ("```text", "```")
    assert len(block) <= 84
    assert not any("```" in line for line in block[1:-1])


def test_a_gpu_that_torch_will_not_use_is_not_called_absent(recorded: Recorded) -> None:
    hidden = SetVariable(name="CUDA_VISIBLE_DEVICES", value="-1")
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), variables=(hidden,))

    page = render_diagnosis(diagnose(machine, recorded.knowledge), page=Page(100, colour=False))

    assert "Training will run on the CPU: PyTorch will not use the GPU as configured." in page


def test_without_torch_nothing_is_promised_and_the_python_can_be_named(recorded: Recorded) -> None:
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), python=None, torch=None)

    page = render_diagnosis(diagnose(machine, recorded.knowledge), page=Page(100, colour=False))

    assert "No PyTorch was found" in page
    assert "rocsteady doctor --python PATH" in page
    assert "rocsteady wheels" in page
    assert "Unknown" not in page


@pytest.mark.parametrize("name", ["wsl2", "r9700-without-peers", "mixed-libraries"])
def test_no_variable_is_called_harmless_beside_a_finding_about_one(
    recorded: Recorded, name: str
) -> None:
    page = render_diagnosis(recorded.diagnosis(name), page=Page(100, colour=False))

    assert "[!] Settings  risk: " in page


@WIDTHS
def test_every_rule_has_a_page_that_fits(knowledge: Knowledge, width: int) -> None:
    for rule in knowledge.rules.values():
        plain, coloured = (
            render_rule(rule, knowledge, page=Page(width, colour=colour))
            for colour in (False, True)
        )
        fix = rule.fix
        commands = {*typed((*fix.commands, *fix.windows, *fix.container, *fix.check), knowledge)}

        check_page(plain, coloured, width, commands)
        assert all(line in plain for line in commands)
        urls = (knowledge.sources[key].url for key in rule.sources)
        assert all(url in plain for url in urls if url)
