"""The page on the field notes is true: what is done runs and says so, what is planned is not there.

The page holds all that its commands need; a test that does not run one reads the page only.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import groupby, takewhile
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from rocsteady.cli.main import rocsteady
from rocsteady.doctor.knowledge.reader import Knowledge

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "field-notes.md").read_text(encoding="utf-8")
TORCH_PYTHON = "ROCSTEADY_TEST_TORCH_PYTHON"
LIBRARY = str(ROOT / "packages" / "rocsteady-train" / "src")  # as if it were installed beside torch
WITHIN = "180"  # seconds; a slow one hangs for a while, on a busy machine
# Lines that name something of which no effect was seen.
WITHOUT_EFFECT = re.compile(r"(?i)\bnot run\b|\bnot tried\b|had no effect|no effect on this script")
THREAD = re.compile(r"[\w-]+/[\w-]+#[0-9]+")


class Row(NamedTuple):
    """One row of a note's table."""

    note: str
    does: str
    command: str
    state: str


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def read_rows() -> list[Row]:
    rows = []
    for note, text in re.findall(
        r"^## Note (\w): .*?\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE
    ):
        for line in re.findall(r"^\| (.*) \|$", text, re.MULTILINE)[1:]:
            _, does, command, state = line.split(" | ")
            rows.append(Row(note, does, command.strip("`"), state))
    return rows


ROWS = read_rows()
DONE = sorted((row for row in ROWS if row.state != "planned"), key=lambda row: row.command)
PLANNED = sorted({row.command for row in ROWS if row.state == "planned"})


def commands_that_are_done() -> list[object]:
    """Give each command once, with all that the page says of it."""
    given: list[object] = []
    for command, same in groupby(DONE, key=lambda row: row.command):
        rows = list(same)
        marks = [pytest.mark.slow] if "slow" in rows[0].state else []
        given.append(pytest.param(rows, id=command, marks=marks))
    return given


def lay_out(folder: Path, python: str) -> None:
    """Make the folder that the page asks for, and the two programs that its commands name."""
    for name, text in re.findall(
        r"```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)```", PAGE, re.DOTALL
    ):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (folder / "machines").symlink_to(ROOT / "tests" / "machines")
    (folder / "bin").mkdir()
    ours = shlex.join([sys.executable, "-m", "rocsteady"])
    for name, program in {"rocsteady": ours, "python": shlex.quote(python)}.items():
        file = folder / "bin" / name
        file.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        file.chmod(0o755)


def carry_out(command: str, folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    lay_out(folder, python)
    return subprocess.run(
        ["/usr/bin/timeout", WITHIN, "/bin/sh", "-c", command],  # it ends what sh started, too
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        cwd=folder,
        env={
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            **({"PYTHONPATH": LIBRARY} if command.startswith("python ") else {}),
        },
    )


def effects(output: str) -> str:
    """Leave out the lines that tell of what had no effect."""
    return "\n".join(line for line in output.splitlines() if not WITHOUT_EFFECT.search(line))


def is_there(command: str) -> bool:
    """Tell whether the program has a command and all the options that are typed with it."""
    name, *words = shlex.split(command)[1:]
    found = rocsteady.get_command(click.Context(rocsteady), name)
    if found is None:
        return False
    ours = takewhile(lambda word: word != "--", words)
    return {word for word in ours if word.startswith("--")} <= {
        option for parameter in found.params for option in parameter.opts
    }


@pytest.mark.skipif(os.name == "nt", reason="the page's commands are for a POSIX shell")
@pytest.mark.parametrize("rows", commands_that_are_done())
def test_what_is_done_runs_and_says_so(rows: list[Row], tmp_path: Path) -> None:
    (state,) = {row.state.partition(", ")[2] for row in rows}
    python = sys.executable
    if "slow" in state:
        python = os.environ.get(TORCH_PYTHON, "")
        assert python, f"{TORCH_PYTHON} names no interpreter with torch: use nox -s slow"

    ended = carry_out(rows[0].command, tmp_path, python)

    whole = " ".join(ended.stdout.split())
    seen = " ".join(effects(ended.stdout).split())
    assert ended.returncode == int(state.partition("exit ")[2] or 0), ended.stdout
    missing = [
        text
        for row in rows
        for text in quoted(row.does)
        if text not in (seen if row.state.startswith("done") else whole)
    ]
    assert missing == [], whole


def test_a_word_in_a_line_about_what_was_not_run_shows_nothing() -> None:
    said = "ok       ranks DDP, gloo   2 of 2\nnot run  ranks DataParallel  needs 2 GPUs\n"

    assert "ranks DDP" in effects(said)
    assert "ranks DataParallel" not in effects(said)


def test_no_row_that_is_done_rests_on_the_help_of_a_command_that_acts() -> None:
    acts = [
        row for row in ROWS if re.search(r"rocsteady (run|drill|probe|plan) --help", row.command)
    ]

    assert {row.state for row in acts} <= {"partly"}


@pytest.mark.parametrize(
    "begins",
    [
        "In it: `persistent_workers=False`",
        "DataParallel: tensors on two devices",
        "Production success",
        "Phases: this week",
        "DataParallel deadlocks",
        "Backends: nccl, gloo, mpi",
        "Two crashes of the whole machine",
        "The CPU script",
        "Memory profiling",
    ],
)
def test_what_is_not_all_there_is_marked_so(begins: str) -> None:
    (line,) = re.findall(rf"^\| {re.escape(begins)}.*$", PAGE, re.MULTILINE)

    assert re.search(r"\| partly(?:, slow)? \|$", line), line


def test_what_is_planned_is_not_a_command_or_option_yet() -> None:
    commands = [each for each in PLANNED if each.startswith("rocsteady ")]

    # What is there: say on the page what it does, and mark it as done.
    assert [each for each in commands if is_there(each)] == []


def test_what_is_done_today_would_be_seen() -> None:
    assert is_there("rocsteady run --observe -- python train.py --unknown")
    assert not is_there("rocsteady run --unknown -- python train.py")


def test_every_row_can_be_told() -> None:
    assert {row.note for row in ROWS} == set("ABCDE")
    assert len(ROWS) == len(
        re.findall(r"^\|.*\| (?:done|partly|planned)[^|]* \|$", PAGE, re.MULTILINE)
    )
    for row in ROWS:
        assert re.fullmatch(r"planned|(done|partly)(, slow)?(, exit [0-9]+)?", row.state), row
        assert re.match(r"(\w+=\w+ )?rocsteady |python |cd note-", row.command), row
        assert bool(quoted(row.does)) == (row.state != "planned"), row


def test_every_source_is_known(knowledge: Knowledge) -> None:
    claims = re.findall(r"^- \*.*?(?=^- |^$)", PAGE, re.DOTALL | re.MULTILINE)
    keys = [key for claim in claims for key in quoted(claim.partition("Sources:")[2])]

    assert len(keys) > len(claims) > 20
    assert [key for key in keys if key not in knowledge.sources and not THREAD.fullmatch(key)] == []
    unsourced = [claim for claim in claims if "Sources:" not in claim]
    assert all("No source." in claim for claim in unsourced)


def test_the_examples_that_are_named_exist() -> None:
    assert all((ROOT / example).is_dir() for example in re.findall(r"`(examples/\w+)`", PAGE))
