"""How far a checkpoint is: by its name, its folder's, or the Trainer's state in it."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest

from rocsteady.run.checkpoints.checkpoints import Checkpoints
from rocsteady.run.checkpoints.resume import Checkpoint, CheckpointNumber, checkpoint_number
from rocsteady.run.job.values import Job


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step-50.pt", CheckpointNumber(value=50)),
        ("step-000000050", CheckpointNumber(value=50)),
        ("model_step_1200.ckpt", CheckpointNumber(value=1200)),
        ("epoch=3-step=500.ckpt", CheckpointNumber(value=500)),
        ("iter_000400.pth", CheckpointNumber(value=400)),
        ("global_step77.pt", CheckpointNumber(value=77)),
        ("checkpoint-500", CheckpointNumber(value=500)),
        ("epoch_12.pt", CheckpointNumber(value=12, unit="epoch")),
        ("step-50/model.safetensors", CheckpointNumber(value=50)),
        ("checkpoint-500/pytorch_model.bin", CheckpointNumber(value=500)),
        ("last.pt", None),
        ("model-v2.pt", None),
        ("checkpoint_3.pt", None),  # of what
        ("footstep-3.pt", None),
        (f"step-{10**15}.pt", None),
    ],
)
def test_by_its_name(tmp_path: Path, name: str, expected: CheckpointNumber | None) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.mkdir() if not path.suffix else path.write_bytes(b"x")

    assert checkpoint_number(tmp_path, Path(name)) == expected


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ({"epoch": 1, "global_step": 40, "state": {}}, CheckpointNumber(value=40)),
        ({"model": {"step_size": 3}, "step": 70_000}, CheckpointNumber(value=70_000)),
        ({"optimizer": {"step": 1.0}, "step": 40}, CheckpointNumber(value=40)),
        ({"optimizer": {"step": 1.0}}, None),
        ({"model": {}}, None),
    ],
)
def test_by_what_torch_has_saved_in_it(
    tmp_path: Path, saved: dict[str, object], expected: CheckpointNumber | None
) -> None:
    with zipfile.ZipFile(tmp_path / "last.ckpt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(saved, protocol=2))

    assert checkpoint_number(tmp_path, Path("last.ckpt")) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ('{"epoch": 0.5, "global_step": 44, "log_history": []}', CheckpointNumber(value=44)),
        ('{"global_step": -1}', None),
        ('{"global_step": "44"}', None),
        ("{}", None),
        ("\0", None),
    ],
)
def test_by_the_state_of_the_trainer(
    tmp_path: Path, state: str, expected: CheckpointNumber | None
) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "trainer_state.json").write_text(state)

    assert checkpoint_number(tmp_path, Path("output")) == expected


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

    assert (steps.words, steps.low) == (words, least)


@pytest.mark.parametrize(
    ("printed", "words", "base"),
    [
        (200, "about step 200", 200),  # scripts print and save at round numbers
        (150, "between steps 196 and 201", 196),
        (0, "between steps 196 and 201", 196),
    ],
)
def test_what_the_script_printed_tells_where_in_the_range(
    tmp_path: Path, printed: int, words: str, base: int
) -> None:
    checkpoints = Checkpoints(Job(command=("python",)), tmp_path, tmp_path, None)

    steps = checkpoints.step_of(Checkpoint(path=Path("last.pt"), written=1.0), (196, 201), printed)

    assert (steps.words, steps.best, steps.low, steps.high) == (words, base, 196, 201)
