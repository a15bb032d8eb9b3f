"""The page on the field notes is true: its commands run, and report the rules that it names."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from rocsteady.doctor.knowledge.reader import Knowledge

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "field-notes.md").read_text(encoding="utf-8")
THREAD = re.compile(r"[\w-]+/[\w-]+#[0-9]+")


class Row(NamedTuple):
    note: str
    does: str
    seen: str
    command: str


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


ROWS = [
    Row(note, does, seen, command.strip().strip("`"))
    for note, text in re.findall(r"^## Note (\w): (.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for _, does, seen, command in re.findall(
        r"^\| (.*?) \| (.*?) \| (.*?) \| ?(.*?) ?\|$", text, re.MULTILINE
    )
    if seen != "seen"
]
COMMANDS = sorted({row.command for row in ROWS if row.command})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "machines").symlink_to(ROOT / "tests" / "machines")
    (tmp_path / "train.py").write_text("print('step 1/1')\n")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run_and_report_the_rules_that_are_named(
    command: str, folder: Path, knowledge: Knowledge
) -> None:
    reads_a_machine = command.startswith("rocsteady doctor --root")
    ended = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), *(["--json"] if reads_a_machine else [])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"},
    )

    assert ended.returncode in ((0, 1) if reads_a_machine else (0,)), ended.stderr
    named = {each for row in ROWS if row.command == command for each in quoted(row.does)}
    rules = named & knowledge.rules.keys()
    if reads_a_machine:
        found = {finding["rule"] for finding in json.loads(ended.stdout)["findings"]}
        assert rules
        assert rules <= found


def test_every_row_is_read() -> None:
    assert {row.note for row in ROWS} == set("ABCDE")
    assert {row.seen for row in ROWS} == {"works", "stand-in", "no"}
    assert not [row for row in ROWS if row.seen == "no" and row.command]


def test_every_source_is_known(knowledge: Knowledge) -> None:
    claims = re.findall(r"^- \*[^*].*?(?=^- |^$)", PAGE, re.DOTALL | re.MULTILINE)
    keys = [key for claim in claims for key in quoted(claim.partition("Sources:")[2])]

    assert len(keys) > len(claims) > 20
    assert [key for key in keys if key not in knowledge.sources and not THREAD.fullmatch(key)] == []
    unsourced = [claim for claim in claims if "Sources:" not in claim]
    assert all("No source." in claim for claim in unsourced)
