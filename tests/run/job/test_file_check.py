from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocsteady_train.checkpoints.folder import MANIFEST, FileFact, hash_of, manifest_text
from rocsteady_train.checkpoints.integrity import OLD_TORCH

from rocsteady.run.job import done_when
from rocsteady.run.job.done_when import kind_of, what_is_wrong
from rocsteady.run.job.values import FileKind


def zipped(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("model/data/0", bytes(1000))
    return path.read_bytes()


def safetensors(values: int = 8) -> bytes:
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]},
    }).encode()  # fmt: skip
    return struct.pack("<Q", len(header)) + header + bytes(4 * values)


def wrong_with(path: Path, content: bytes, kind: FileKind = FileKind.MODEL) -> str:
    path.write_bytes(content)
    return what_is_wrong(path, kind)


def test_whole_models_of_every_kind(tmp_path: Path) -> None:
    assert wrong_with(tmp_path / "m.pt", zipped(tmp_path / "z")) == ""
    assert wrong_with(tmp_path / "m.safetensors", safetensors()) == ""
    assert wrong_with(tmp_path / "m.onnx", b"\x08\x08") == ""
    assert wrong_with(tmp_path / "old.pth", OLD_TORCH + b"...") == ""


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_model_cut_short_anywhere_is_found(tmp_path: Path, suffix: str) -> None:
    whole = {".pt": zipped(tmp_path / "z"), ".safetensors": safetensors()}[suffix]
    path = tmp_path / f"m{suffix}"

    for length in range(1, len(whole)):
        assert wrong_with(path, whole[:length]), length


def test_a_zip_with_a_changed_byte_is_found_by_its_checksum(tmp_path: Path) -> None:
    content = bytearray(zipped(tmp_path / "z"))
    content[200] ^= 1

    wrong = wrong_with(tmp_path / "m.pt", bytes(content))

    assert wrong == "is damaged: the checksum of model/data/0 is wrong"


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (str(tmp_path / "ran"),))

    content = pickle.dumps(Bomb())

    assert wrong_with(tmp_path / "m.pt", content).startswith("is not a model file")
    with zipfile.ZipFile(tmp_path / "z.pt", "w") as archive:
        archive.writestr("m/data.pkl", content)
    assert what_is_wrong(tmp_path / "z.pt", FileKind.MODEL) == ""
    assert not (tmp_path / "ran").exists()


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "m.json"

    assert wrong_with(path, b'{"loss": NaN}', FileKind.JSON) == ""  # as Python writes it
    assert wrong_with(path, b'{"loss": ', FileKind.JSON).startswith("is not JSON")
    assert wrong_with(path, b"[" * 100_000, FileKind.JSON).startswith("is not JSON")
    assert wrong_with(path, b"\xff", FileKind.JSON).startswith("is not JSON")


def test_a_checkpoint_that_is_a_folder_has_its_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "step-100"
    folder.mkdir()

    assert what_is_wrong(folder, FileKind.ANY) == "is an empty folder"
    (folder / "__0_0.distcp").write_bytes(b"x")
    assert what_is_wrong(folder, FileKind.ANY) == ""
    assert "without the .metadata" in what_is_wrong(folder, FileKind.MODEL)
    (folder / ".metadata").write_bytes(b"x")
    assert what_is_wrong(folder, FileKind.MODEL) == ""
    assert what_is_wrong(folder, FileKind.JSON) == "is a folder"


def test_what_is_not_there_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    assert what_is_wrong(tmp_path / "empty", FileKind.ANY) == "is empty"
    assert what_is_wrong(tmp_path / "gone", FileKind.ANY) == "is neither a file nor a folder"
    assert kind_of(Path("a/last.ckpt")) is FileKind.MODEL
    assert kind_of(Path("a/meta.json")) is FileKind.JSON
    assert kind_of(Path("a/step-5")) is FileKind.ANY


@settings(deadline=None)
@given(st.binary(max_size=300), st.sampled_from([".pt", ".safetensors", ".onnx", ".json", ""]))
def test_any_bytes_have_an_answer(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    for kind in FileKind:
        for start in (b"", b"PK\x03\x04", struct.pack("<Q", 8), OLD_TORCH):
            assert isinstance(wrong_with(path, start + content, kind), str)


@given(st.binary(min_size=1, max_size=40), st.integers(0, 1200))
def test_a_damaged_zip_has_an_answer(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    base = tmp_path_factory.getbasetemp()
    content = bytearray(zipped(base / "z"))
    content[at : at + len(noise)] = noise

    assert isinstance(wrong_with(base / "damaged.pt", bytes(content)), str)


class Ours:
    """A checkpoint as rocsteady_train writes it."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "step-000000042"
        self.folder.mkdir()
        self.tensors = self.folder / "rank-0.safetensors"
        self.tensors.write_bytes(safetensors())
        (self.folder / "plan.json").write_bytes(b"{}")
        (self.folder / "rank-0.json").write_bytes(b'{"world": 1, "state": {}}')
        self.seal()

    def seal(self) -> None:
        contents = {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}
        facts = [
            FileFact(name, len(content), hash_of([hashlib.sha256(content).digest()]))
            for name, content in contents.items()  # each is one block
            if name != MANIFEST
        ]
        (self.folder / MANIFEST).write_bytes(manifest_text(42, 1, facts))

    @property
    def wrong(self) -> str:
        return what_is_wrong(self.folder, kind_of(self.folder))


def test_a_checkpoint_of_ours_is_whole_by_every_byte(tmp_path: Path) -> None:
    ours = Ours(tmp_path)
    assert ours.wrong == ""

    content = bytearray(ours.tensors.read_bytes())
    content[-1] ^= 1
    ours.tensors.write_bytes(content)
    assert ours.wrong == "has other bytes in rank-0.safetensors than were written"

    ours.tensors.write_bytes(content[:-1])
    assert ours.wrong == f"has {len(content) - 1} bytes of {len(content)} in rank-0.safetensors"

    ours.tensors.unlink()
    assert ours.wrong == "has no rank-0.safetensors"


def test_of_a_large_one_the_sizes_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(done_when, "HASH_LIMIT", 10)
    ours = Ours(tmp_path)
    content = ours.tensors.read_bytes()

    ours.tensors.write_bytes(bytes(len(content)))
    assert ours.wrong == ""  # who restores it reads every byte

    ours.tensors.write_bytes(content[:-1])
    assert "bytes of" in ours.wrong


@pytest.mark.parametrize("line", [b"", b"[]", b"3", b"{}", b'{"version": 1}', b"\xff", b'"x'])
def test_a_manifest_that_is_something_else_is_no_manifest(tmp_path: Path, line: bytes) -> None:
    ours = Ours(tmp_path)
    digest = hashlib.sha256(line).hexdigest().encode()

    (ours.folder / MANIFEST).write_bytes(line + b"\n" + digest + b"\n")

    assert ours.wrong == "has a manifest that cannot be understood"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
def test_nothing_is_opened_that_is_no_file(tmp_path: Path) -> None:
    ours = Ours(tmp_path)
    os.mkfifo(ours.folder / "waits")
    ours.tensors.unlink()
    (ours.folder / "waits").rename(ours.tensors)

    assert ours.wrong == "has no rank-0.safetensors"

    (ours.folder / MANIFEST).unlink()
    os.mkfifo(ours.folder / MANIFEST)
    assert ours.wrong == "has a manifest that is not a file"
