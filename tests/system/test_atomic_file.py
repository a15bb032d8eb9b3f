"""A file is whole or as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocsteady.system.atomic_file import write_whole


def test_a_new_file_and_nothing_beside_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"new")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"new"}


def test_an_old_file_is_replaced_and_not_written_into(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"the old content, which is longer")
    with path.open("rb") as reader:
        write_whole(path, b"new")

        assert reader.read() == b"the old content, which is longer"
    assert path.read_bytes() == b"new"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        assert descriptor > 2
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)  # the only step that can be made to fail here

    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_a_target_that_cannot_be_replaced_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "gone" / "file", b"new")
