"""How far a checkpoint is, as it says itself; nothing of it is ever run."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from rocsteady.job.checkpoint_number import Number, number_of
from rocsteady.job.resume import Checkpoint
from rocsteady.job.values import Job
from rocsteady.supervisor.checkpoints import Checkpoints


class Runs:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.trace,))


def torch_file(path: Path, state: object, protocol: int = 2) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("last/data.pkl", pickle.dumps(state, protocol))
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step-50.pt", Number(value=50)),
        ("step-000000050", Number(value=50)),
        ("model_step_1200.ckpt", Number(value=1200)),
        ("epoch=3-step=500.ckpt", Number(value=500)),
        ("iter_000400.pth", Number(value=400)),
        ("global_step77.pt", Number(value=77)),
        ("checkpoint-500", Number(value=500)),
        ("epoch_12.pt", Number(value=12, unit="epoch")),
        ("last.pt", None),
        ("model-v2.pt", None),
        ("checkpoint_3.pt", None),  # of what
        ("footstep-3.pt", None),
    ],
)
def test_by_its_name(tmp_path: Path, name: str, expected: Number | None) -> None:
    path = tmp_path / name
    path.mkdir() if not path.suffix else path.write_bytes(b"x")

    assert number_of(path) == expected


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"model": {"w": [1, 2]}, "step": 50}, Number(value=50)),
        ({"epoch": 3, "global_step": 70_000, "lr": 0.1}, Number(value=70_000)),
        ({"epoch": 3, "model": {}}, Number(value=3, unit="epoch")),
        ({"step": 50, "other": {"step": 7}}, None),
        ({"step": "fifty"}, None),
        ({"step": -1}, None),
        ({"w": [1.0]}, None),
    ],
)
def test_by_what_torch_saved(
    tmp_path: Path, state: object, expected: Number | None, protocol: int
) -> None:
    assert number_of(torch_file(tmp_path / "last.pt", state, protocol)) == expected


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "last.pt", {"step": 50, "evil": Runs(tmp_path / "ran")})

    assert number_of(path) == Number(value=50)
    assert not (tmp_path / "ran").exists()


def test_by_other_formats(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"step": "90"}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (tmp_path / "state.json").write_text('{"iteration": 12}')
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "trainer_state.json").write_text('{"epoch": 0.5, "global_step": 44}')
    for broken in ("b.safetensors", "c.pt", "d.json"):
        (tmp_path / broken).write_bytes(b"\x00\x01")

    found = {path.name: number_of(path) for path in tmp_path.iterdir()}

    assert {name: number.value for name, number in found.items() if number} == {
        "a.safetensors": 90,
        "state.json": 12,
        "output": 44,
    }


@pytest.mark.parametrize(
    ("name", "seen", "words", "least"),
    [
        ("step-50.pt", (45, 52), "step 50", 50),
        ("step-50.pt", (0, 0), "step 50", 50),
        ("last.pt", (45, 52), "between steps 45 and 52", 45),
        ("last.pt", (50, 50), "about step 50", 50),
        ("last.pt", (0, 0), "", 0),
        ("step-50.pt", (1000, 1010), "between steps 1,000 and 1,010", 1000),  # in other units
    ],
)
def test_otherwise_a_range_is_given(
    tmp_path: Path, name: str, seen: tuple[int, int], words: str, least: int
) -> None:
    checkpoints = Checkpoints(Job(command=("python",)), tmp_path, tmp_path, None)

    steps = checkpoints.step_of(Checkpoint(path=Path(name), written=1.0), seen)

    assert (steps.words, steps.least) == (words, least)
