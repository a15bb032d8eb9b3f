"""What a file of torch.save says of itself; one that is damaged says nothing, and ends nothing."""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from pathlib import Path

import pytest

from rocsteady.run.checkpoints.own_checkpoints import _has_training_state
from rocsteady.run.checkpoints.resume import checkpoint_number

STATE = {"model": {"weight": list(range(60))}, "optimizer": {"lr": 0.1}, "global_step": 70_000}


def archive(content: bytes, packed: int) -> bytearray:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packed) as made:
        made.writestr("archive/data.pkl", content)
    return bytearray(stream.getvalue())


def test_the_step_in_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(archive(pickle.dumps(STATE, 2), zipfile.ZIP_STORED))

    found = checkpoint_number(tmp_path, Path("last.pt"))

    assert found is not None
    assert found.value == 70_000
    assert _has_training_state(tmp_path / "last.pt")


def test_a_step_below_zero_is_none(tmp_path: Path) -> None:
    content = pickle.dumps({"global_step": -5}, 2)
    (tmp_path / "last.pt").write_bytes(archive(content, zipfile.ZIP_STORED))

    assert checkpoint_number(tmp_path, Path("last.pt")) is None


@pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_file_raises_nothing(packed: int, tmp_path: Path) -> None:
    dice = random.Random(1)  # noqa: S311 - the same damage each time
    whole = archive(pickle.dumps(STATE, 2), packed)
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        (tmp_path / "last.pt").write_bytes(damaged)

        checkpoint_number(tmp_path, Path("last.pt"))
        _has_training_state(tmp_path / "last.pt")
