"""The checker for those who write entries: it names the file, the line and the field."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocsteady.doctor.knowledge.reader import DATA

TOOL = Path(__file__).parents[3] / "tools" / "knowledge_check.py"
knowledge_problems = runpy.run_path(str(TOOL))["knowledge_problems"]

DUMMY = """
[[rule]]
id = "dummy-rule"
title = "A rule of a newcomer"
severity = "notes"
summary = "This is {gpu.gfx} with ROCm {torch.rocm}."
why = "For a test."
confidence = "community"
sources = ["therock-releases"]
confirmed_on = []
[rule.example]
"gpu.gfx" = "gfx90a"
"torch.rocm" = "7.13"
[rule.when]
all = [{ fact = "gpu.gfx", is = "gfx90a" }, { fact = "torch.rocm", version = ">=7.13" }]
[rule.fix]
text = "Nothing."
verify = "Nothing."
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    shutil.copytree(DATA, tmp_path / "data")
    return tmp_path / "data"


def test_the_packaged_entries_have_no_problem() -> None:
    assert knowledge_problems() == ()


def test_a_new_rule_takes_one_file(data: Path) -> None:
    rules = data / "rules" / "limits.toml"
    rules.write_text(rules.read_text() + DUMMY)

    assert knowledge_problems(data) == ()


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("set = {", "variables = {", "unknown field `variables`"),
        ("cost = ", "costs = ", "unknown field `costs`"),
        ('"hang-in-download"', '"hang-in-downlod"', "'hang-in-downlod' is not in failures.toml"),
        ('id = "xet-off"', 'id = "loader-spawn"', "taken by another entry"),
    ],
)
def test_a_problem_of_a_remedy_is_named(data: Path, right: str, wrong: str, said: str) -> None:
    remedies = data / "remedies.toml"
    before, entry = remedies.read_text().split('id = "xet-off"')
    assert right in f'id = "xet-off"{entry}'
    remedies.write_text(before + f'id = "xet-off"{entry}'.replace(right, wrong, 1))

    assert any(said in problem.problem for problem in knowledge_problems(data))


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        ('severity = "notes"', 'severity = "bad"', 2, "Invalid enum value 'bad' - at `$.severity`"),
        ("therock-releases", "no-such", 8, "sources: 'no-such' is not in sources.toml"),
        ("{gpu.gfx}", "{gpu.gfz}", 5, "summary: {gpu.gfz} is not a fact"),
        ('"7.13"', '"7.2"', 10, "example: the rule does not hold on it"),
        ("ROCm {torch.rocm}.", "ROCm {torch.rocm}", 5, "summary: ends with a full stop"),
        (
            'verify = "Nothing."',
            'commands = ["docker run <image>"]',
            17,
            "fix.commands: <image> is left open: write an example, and say so",
        ),
        (
            'verify = "Nothing."',
            'verify = "Nothing."\nunset = ["HSA_XNACK"]',
            15,
            "fix.commands: no 'unset HSA_XNACK', which set or unset stands for",
        ),
        (
            'version = ">=7.13"',
            'version = "new"',
            13,
            "when.all[1].version: 'new' is not a version",
        ),
    ],
)
def test_a_problem_is_named_with_its_line(
    data: Path, right: str, wrong: str, line: int, said: str
) -> None:
    rules = data / "rules" / "limits.toml"
    before = len(rules.read_text().splitlines()) + 1
    rules.write_text(rules.read_text() + DUMMY.replace(right, wrong, 1))

    (problem,) = knowledge_problems(data)

    assert (problem.file, problem.entry) == ("rules/limits.toml", "dummy-rule")
    assert problem.problem.startswith(said)
    assert problem.line - before == line


def test_the_command_prints_them_and_ends_with_1(data: Path) -> None:
    rules = data / "rules" / "limits.toml"
    rules.write_text(rules.read_text() + DUMMY.replace("therock-releases", "no-such"))

    ended = subprocess.run(
        [sys.executable, TOOL, data.name],
        cwd=data.parent,
        check=False,
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 1
    assert ended.stdout.startswith("rules/limits.toml:")
    assert ended.stdout.endswith("dummy-rule: sources: 'no-such' is not in sources.toml\n")
