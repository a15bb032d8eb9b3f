"""``rocsteady checkpoint``, on checkpoints that are spelt byte by byte, and on real ones."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import rocsteady as package
from rocsteady.checkpoint_folder import MANIFEST, FileFact, hash_of, manifest_text, name_of
from rocsteady.cli.main import rocsteady
from rocsteady.errors import RequestError

LIBRARY = str(Path(package.__file__).parents[1])
WRITES = """
import os, sys
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
import rocsteady

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(5, 4)
        self.second = torch.nn.Linear(4, 3).to(torch.bfloat16)
        self.register_buffer("count", torch.tensor(7))
        self.register_buffer("flags", torch.tensor([True, False]))

torch.manual_seed(int(os.environ.get("SEED", "1")))
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.25)
net.first(torch.ones(2, 5)).sum().backward()
optimizer.step()
values = {"epoch": 3}
state = {"model": net, "optimizer": optimizer, "values": values}
"""
SAVES = """
checkpointer = rocsteady.Checkpointer("checkpoints")
checkpointer.save(3, state, wait=True)
"""


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


def plain(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Read a safetensors file by its specification."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    data, end = content[8 + length :], 0
    found = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        assert start == end  # no gaps
        end = stop
        found[name] = (entry["dtype"], entry["shape"], data[start:stop])
    assert end == len(data)
    return found


def test_list_and_verify_say_which_are_whole(tmp_path: Path) -> None:
    by_two_ranks(tmp_path, 5)
    newer = by_two_ranks(tmp_path, 1200)
    (tmp_path / "other").mkdir()
    whole = told("verify", tmp_path)
    (newer / "rank-1.safetensors").write_bytes(b"x")

    listed, verified = told("list", tmp_path), told("verify", "--json", tmp_path)

    assert (whole.exit_code, whole.output.count("  ok\n")) == (0, 2)
    assert listed.exit_code == 0
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
    assert told("list", tmp_path).output == f"No rocsteady checkpoints in {tmp_path}.\n"
    ended = subprocess.run(
        [sys.executable, "-m", "rocsteady", "checkpoint", "verify", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    gone = subprocess.run(
        [sys.executable, "-m", "rocsteady", "checkpoint", "list"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert (ended.returncode, ended.stderr) == (
        3,
        f"rocsteady: no rocsteady checkpoints in {tmp_path}\n",
    )
    assert gone.returncode == 2
    assert (
        "checkpoints does not exist. Name the folder that contains the checkpoints." in gone.stderr
    )


def test_pieces_of_ranks_are_put_together_in_one_plain_file(tmp_path: Path) -> None:
    checkpoint, target = by_two_ranks(tmp_path), tmp_path / "model.safetensors"
    numbers = struct.pack("<24h", *(10 * row + column for row in range(4) for column in range(6)))

    ended = told("export", checkpoint, "--to", target)

    assert ended.exit_code == 0, ended.output
    assert ended.output == f"{target}: 2 tensors, {target.stat().st_size} B.\n"
    assert plain(target) == {"columns": ("I16", [4, 6], numbers), "rows": ("I16", [4, 6], numbers)}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.safetensors",
        checkpoint.name,
    ]


def test_everything_or_another_entry_can_be_had(tmp_path: Path) -> None:
    checkpoint = by_two_ranks(tmp_path)

    assert told("export", checkpoint, "--to", tmp_path / "all", "--all").exit_code == 0
    assert told("export", checkpoint, "--to", tmp_path / "v", "--entry", "values").exit_code == 0
    ended = told("export", checkpoint, "--to", tmp_path / "n", "--entry", "net")

    assert list(plain(tmp_path / "all")) == ["values/best", "model/columns", "model/rows"]
    assert plain(tmp_path / "v") == {"best": ("F64", [], struct.pack("<d", 2.5))}
    assert isinstance(ended.exception, RequestError)
    assert str(ended.exception) == f"{checkpoint}: no entry named 'net'. Entries: model, values"


def test_nothing_is_written_over(tmp_path: Path) -> None:
    checkpoint, target = by_two_ranks(tmp_path), tmp_path / "mine"
    target.write_bytes(b"mine")

    ended = told("export", checkpoint, "--to", target)

    assert ended.exit_code == 2
    assert "already exists" in ended.output
    assert target.read_bytes() == b"mine"


def test_what_is_broken_is_not_exported(tmp_path: Path) -> None:
    checkpoint = by_two_ranks(tmp_path)
    (checkpoint / "rank-1.safetensors").unlink()

    ended = told("export", checkpoint, "--to", tmp_path / "m")

    assert ended.exit_code == 1
    assert str(ended.exception) == f"{checkpoint} has no rank-1.safetensors"
    assert not (tmp_path / "m").exists()


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

    ended = told("export", checkpoint, "--to", tmp_path / "m")

    assert ended.exit_code == 1
    assert str(ended.exception).startswith(f"{checkpoint} has ")
    assert not (tmp_path / "m").exists()


# ---- With torch ----


def run(python: str, text: str, folder: Path, *before: str, **variables: str) -> str:
    done = subprocess.run(
        [python, *before, "-c", text],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": LIBRARY, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_plain_file_is_the_models_state_dict(tmp_path: Path, torch_python: str) -> None:
    text = (
        WRITES
        + SAVES
        + """
import json
print(json.dumps({
    name: [list(t.shape), bytes(t.contiguous().view(-1).view(torch.uint8).tolist()).hex()]
    for name, t in net.state_dict().items()
}))
"""
    )
    wanted = json.loads(run(torch_python, text, tmp_path))

    ended = told("export", tmp_path / "checkpoints" / name_of(3), "--to", tmp_path / "m")

    assert ended.exit_code == 0, ended.output
    found = {name: [shape, data.hex()] for name, (_, shape, data) in plain(tmp_path / "m").items()}
    assert found == wanted


@pytest.mark.slow
def test_a_stock_folder_goes_out_and_comes_in(tmp_path: Path, torch_python: str) -> None:
    run(torch_python, WRITES + SAVES, tmp_path)
    step = tmp_path / "checkpoints" / name_of(3)
    python = ("--python", torch_python)

    out = told("export", step, "--to", tmp_path / "stock", "--format", "dcp", *python)
    loads = """
mine = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
dcp.load(mine, checkpoint_id="stock", no_dist=True)
torch.save(mine, "stock.pt")
"""
    run(torch_python, WRITES + loads, tmp_path, SEED="2")
    back = told("import", tmp_path / "stock", "--to", tmp_path / "again", "--step", "9", *python)
    again = told("import", tmp_path / "stock", "--to", tmp_path / "again", "--step", "9", *python)
    compares = """
def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other

wanted = {name: state[name].state_dict() for name in ("model", "optimizer")}
assert same(torch.load("stock.pt", weights_only=True), wanted)
other = Net()
theirs = torch.optim.AdamW(other.parameters())
step = rocsteady.Checkpointer("again").restore(
    {"model": other, "optimizer": theirs, "values": values}
)
assert step == 9 and values == {"epoch": 3}
assert same(wanted, {"model": other.state_dict(), "optimizer": theirs.state_dict()})
"""
    run(torch_python, WRITES + compares, tmp_path)

    assert (out.exit_code, out.output) == (0, f"{tmp_path / 'stock'}: 12 tensors.\n")
    made = tmp_path / "again" / name_of(9)
    assert (back.exit_code, back.output) == (0, f"{made}: 3 entries.\n")
    assert again.exit_code == 2
    assert "already exists" in again.output


@pytest.mark.slow
def test_a_single_state_dict_is_the_model(tmp_path: Path, torch_python: str) -> None:
    save = "dcp.save(net.state_dict(), checkpoint_id='stock', no_dist=True)\n"
    run(torch_python, WRITES + save, tmp_path)

    ended = told("import", tmp_path / "stock", "--to", tmp_path / "c", "--python", torch_python)
    exported = told("export", tmp_path / "c" / name_of(0), "--to", tmp_path / "m")

    assert (ended.exit_code, exported.exit_code) == (0, 0), ended.output
    assert set(plain(tmp_path / "m")) == {
        *("first.weight", "first.bias", "second.weight", "second.bias", "count", "flags")
    }


@pytest.mark.slow
@pytest.mark.parametrize("where", ["description", "tensor", "elsewhere"])
def test_nothing_in_a_stock_folder_is_run(tmp_path: Path, torch_python: str, where: str) -> None:
    spoil = f"""
import pickle
dcp.save({{"model": net.state_dict()}}, checkpoint_id="stock", no_dist=True)

class Evil:
    def __reduce__(self):
        return os.system, ("touch ran",)

with open("stock/.metadata", "rb") as stream:
    described = pickle.load(stream)
if {where!r} == "description":
    described.planner_data = Evil()
for info in described.storage_data.values():
    if {where!r} == "tensor":
        size = os.path.getsize("stock/" + info.relative_path)
        with open("stock/" + info.relative_path, "ab") as stream:
            torch.save(Evil(), stream)
            info.offset, info.length = size, stream.tell() - size
    if {where!r} == "elsewhere":
        info.relative_path = "../stock/" + info.relative_path
with open("stock/.metadata", "wb") as stream:
    pickle.dump(described, stream)
"""
    run(torch_python, WRITES + spoil, tmp_path)
    ran = [tmp_path / "ran", Path("ran"), Path("/ran")]

    ended = told("import", tmp_path / "stock", "--to", tmp_path / "c", "--python", torch_python)

    assert ended.exit_code == 1
    said = {
        "description": "posix.system has no place in a description: refused",
        "tensor": "cannot be read: UnpicklingError",
        "elsewhere": "not in the folder",
    }[where]
    assert said in str(ended.exception)
    assert not any(path.exists() for path in ran)
    assert not list(tmp_path.glob("c/step-*"))


@pytest.mark.slow
def test_what_two_ranks_wrote_is_one_file(tmp_path: Path, torch_python: str) -> None:
    text = """
import json, os
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
import rocsteady

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
numbers = torch.arange(42.0).view(6, 7)
state = {"model": {
    "rows": distribute_tensor(numbers, mesh, [Shard(0)]),
    "columns": distribute_tensor(numbers, mesh, [Shard(1)]),
    "alike": torch.arange(3),
}}
checkpointer = rocsteady.Checkpointer("checkpoints")
checkpointer.save(1, state, wait=True)
dist.destroy_process_group()
"""
    (tmp_path / "ranks.py").write_text(text)
    start = "import runpy, sys; sys.argv = ['torchrun', '--nproc-per-node=2', 'ranks.py'];"
    run(
        torch_python,
        start + "runpy.run_module('torch.distributed.run', run_name='__main__')",
        tmp_path,
    )
    target = tmp_path / "m"

    ended = told("export", tmp_path / "checkpoints" / name_of(1), "--to", target)

    numbers = struct.pack("<42f", *range(42))
    assert ended.exit_code == 0, ended.output
    assert plain(target) == {
        "alike": ("I64", [3], struct.pack("<3q", 0, 1, 2)),
        "columns": ("F32", [6, 7], numbers),
        "rows": ("F32", [6, 7], numbers),
    }
