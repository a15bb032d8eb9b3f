"""``rocsteady checkpoint``, on checkpoints that are spelt byte by byte."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rocsteady_train.checkpoints.folder import MANIFEST, FileFact, hash_of, manifest_text, name_of

from rocsteady.cli.main import rocsteady


def told(*words: str | Path) -> Result:
    return CliRunner().invoke(rocsteady, ["checkpoint", *map(str, words)])


def seal(folder: Path, step: int) -> None:
    contents = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    facts = [
        FileFact(name, len(content), hash_of([hashlib.sha256(content).digest()]))
        for name, content in contents.items()  # each is one block
    ]
    (folder / MANIFEST).write_bytes(manifest_text(step, 1, facts))


def by_two_ranks(root: Path, step: int = 42) -> Path:
    """Write a checkpoint whose tensors lie in pieces in the files of two ranks."""
    folder = root / name_of(step)
    folder.mkdir(parents=True)
    numbers = [[10 * row + column for column in range(6)] for row in range(4)]
    pieces = {  # where in the tensor, and which rows and columns
        "rank-0.safetensors": ("rows", [[0, 0], [3, 6]], ("columns", [[0, 0], [4, 2]])),
        "rank-1.safetensors": ("rows", [[3, 0], [1, 6]], ("columns", [[0, 2], [4, 4]])),
    }
    plan: dict[str, Any] = {
        f"model/{name}": {"dtype": "I16", "size": [4, 6], "chunks": []}
        for name in ("rows", "columns")
    }
    for file, (first, place, other) in pieces.items():
        content = b"some header "
        for name, (offsets, sizes) in ((first, place), other):
            block = [
                numbers[row][column]
                for row in range(offsets[0], offsets[0] + sizes[0])
                for column in range(offsets[1], offsets[1] + sizes[1])
            ]
            packed = struct.pack(f"<{len(block)}h", *block)
            chunk = [offsets, sizes, file, len(content), len(packed)]
            plan[f"model/{name}"]["chunks"].append(chunk)
            content += packed
        (folder / file).write_bytes(content)
    scalar = struct.pack("<d", 2.5)
    with (folder / "rank-0.safetensors").open("ab") as stream:
        start = stream.tell()
        stream.write(scalar)
    single = [[], [], "rank-0.safetensors", start, 8]
    plan["values/best"] = {"dtype": "F64", "size": [], "chunks": [single]}
    (folder / "plan.json").write_text(json.dumps(plan))
    state = {
        "model": {name: {"!": "tensor", "name": f"model/{name}"} for name in ("rows", "columns")},
        "values": {"best": {"!": "tensor", "name": "values/best"}, "epoch": 3},
    }
    for rank in range(2):
        (folder / f"rank-{rank}.json").write_text(json.dumps({"world": 2, "state": state}))
    seal(folder, step)
    return folder


def test_it_says_which_are_whole(tmp_path: Path) -> None:
    by_two_ranks(tmp_path, 5)
    newer = by_two_ranks(tmp_path, 1200)
    (tmp_path / "other").mkdir()
    whole = told(tmp_path)
    (newer / "rank-1.safetensors").write_bytes(b"x")

    listed, verified = told(tmp_path), told("--json", tmp_path)

    assert (whole.exit_code, whole.output.count("  ok\n")) == (0, 2)
    assert listed.exit_code == 1
    lines = listed.output.splitlines()
    assert lines[1].split()[0] == "1,200"
    assert re.search(r"broken: has 1 bytes of \d+ in rank-1.safetensors$", lines[1])
    assert lines[2].split()[0] == "5"
    assert lines[2].endswith("ok")
    assert verified.exit_code == 1
    found = json.loads(verified.output)
    assert found["version"] == 1
    assert [(each["step"], bool(each["wrong"])) for each in found["checkpoints"]] == [
        (1200, True),
        (5, False),
    ]


def test_where_there_is_nothing_to_verify(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "rocsteady", "checkpoint", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    gone = subprocess.run(
        [sys.executable, "-m", "rocsteady", "checkpoint"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert (ended.returncode, ended.stderr) == (
        3,
        f"error: no checkpoints of rocsteady_train in {tmp_path}\n",
    )
    (tmp_path / "last.pt").touch()
    assert "a script saves itself is not verified" in str(told(tmp_path).exception)
    assert gone.returncode == 2
    assert (
        "checkpoints does not exist. Name the folder that contains the checkpoints." in gone.stderr
    )


@pytest.mark.parametrize(
    "change",
    [
        {"size": [4, 7]},
        {"size": [-4, -6]},
        {"dtype": "X"},
        {"chunks": [[[0, 0], [4, 6], "rank-0.safetensors", 1 << 40, 48]]},
        {"chunks": [[[0, 0], [4, 6], "../rank-0.safetensors", 0, 48]]},
        {"chunks": [[[0, 0], [4, 6], "manifest.json", 0, 48]]},
        {"chunks": [[[0], [24], "rank-0.safetensors", 0, 48]]},
        {"chunks": [[[-1, 0], [4, 6], "rank-0.safetensors", 0, 48]]},
        {"chunks": 3},
        {"chunks": []},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_plan_that_lies_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    checkpoint = by_two_ranks(tmp_path)
    plan = json.loads((checkpoint / "plan.json").read_text())
    plan["model/rows"].update(change)
    (checkpoint / MANIFEST).unlink()
    (checkpoint / "plan.json").write_text(json.dumps(plan))
    seal(checkpoint, 42)

    ended = told("--json", tmp_path)

    assert ended.exit_code == 1
    assert json.loads(ended.output)["checkpoints"][0]["wrong"].startswith("has ")
