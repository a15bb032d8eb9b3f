"""What is whole in the folder of a checkpoint; single files are those of test_readable."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

from rocsteady_train.checkpoints import integrity as file_integrity


def checkpoint(folder: Path) -> Path:
    folder.mkdir()
    for name in ("optimizer.pt", "rng_state.pth", "training_args.bin", "random_states_0.pkl"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
            archive.writestr("archive/data/0", bytes(range(250)) * 4)
    header = json.dumps({"w": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(32))
    (folder / "trainer_state.json").write_text('{"global_step": 3}')
    (folder / "other.pkl").write_bytes(b"\x80\x04N.")
    (folder / "README.md").touch()
    return folder


def test_a_whole_folder(tmp_path: Path) -> None:
    assert file_integrity.wrong_with_files_in(checkpoint(tmp_path / "c")) == ""


def test_every_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c")
    judged = [
        path for path in sorted(folder.iterdir()) if path.name not in ("README.md", "other.pkl")
    ]
    assert len(judged) == 6
    for path in judged:
        content = path.read_bytes()
        path.write_bytes(content[:-9])
        assert file_integrity.wrong_with_files_in(folder).startswith(
            f"is not whole: {path.name} is "
        )
        path.write_bytes(b"")
        assert file_integrity.wrong_with_files_in(folder) == f"is not whole: {path.name} is empty"
        path.write_bytes(content)


def test_an_empty_pickle_is_named_and_another_is_never_opened_as_one(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c")
    (folder / "other.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert file_integrity.wrong_with_files_in(folder) == ""
    (folder / "other.pkl").write_bytes(b"")
    assert file_integrity.wrong_with_files_in(folder) == "is not whole: other.pkl is empty"


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    gone = file_integrity.wrong_with_files_in(tmp_path / "gone")
    assert gone == "cannot be read: No such file or directory"


def test_checksums_are_read_up_to_a_size(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "c") / "optimizer.pt"
    content = bytearray(path.read_bytes())
    content[content.index(bytes(range(250))) + 7] ^= 1
    path.write_bytes(content)

    assert file_integrity.wrong_with_model(path, 2000).endswith("archive/data/0 is wrong")
    assert file_integrity.wrong_with_model(path, 500) == ""


def test_what_may_be_anything_must_not_be_empty(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    assert file_integrity.wrong_with_any(folder) == "is an empty folder"
    (folder / "x").touch()
    assert file_integrity.wrong_with_any(folder) == ""
    assert file_integrity.wrong_with_any(folder / "x") == "is empty"
    assert file_integrity.wrong_with_any(folder / "y") == "is neither a file nor a folder"
