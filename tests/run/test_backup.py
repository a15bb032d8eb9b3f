"""What a run wrote is copied aside before the same work is done over it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocsteady.errors import RocsteadyError
from rocsteady.run.checkpoints import backup
from rocsteady.run.checkpoints.backup import back_up, copy_files, wrote_model


def test_only_what_the_run_wrote_is_copied(tmp_path: Path) -> None:
    project, target = tmp_path / "project", tmp_path / "aside"
    (project / "out").mkdir(parents=True)
    (project / ".rocsteady").mkdir()
    for name, when in (("old.py", 100), ("out/model.pt", 300), (".rocsteady/store.db", 300)):
        (project / name).write_text(name)
        os.utime(project / name, (when, when))
    (project / "link").symlink_to(project / "out" / "model.pt")

    copied = back_up(project, 200, target)

    assert copied.files == 1
    assert (target / "out" / "model.pt").read_text() == "out/model.pt"
    assert sorted(path.name for path in target.rglob("*")) == ["model.pt", "out"]


def test_what_rocsteady_keeps_in_a_home_that_is_the_project_is_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".local" / "state"))
    for path in (".local/state/rocsteady/memory.db", ".local/state/mine.db", "model.npz"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")

    found = [path.name for path, _ in backup.written_files(tmp_path, 0)]

    assert sorted(found) == ["mine.db", "model.npz"]


def test_a_folder_of_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "MAX_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}").touch()

    with pytest.raises(RocsteadyError, match="more than 2 files"):
        back_up(tmp_path, 0, tmp_path / "aside")


def test_a_disk_without_room_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.pt").write_text("x")
    monkeypatch.setattr(backup, "RESERVE", 1 << 60)

    with pytest.raises(RocsteadyError, match="not enough disk space"):
        back_up(tmp_path, 0, tmp_path / "aside")
    assert not (tmp_path / "aside").exists()


def test_outputs_behind_a_link_are_copied_and_a_circle_is_walked_once(tmp_path: Path) -> None:
    project, disk = tmp_path / "project", tmp_path / "disk"
    project.mkdir()
    disk.mkdir()
    (project / "checkpoints").symlink_to(disk)
    (disk / "round").symlink_to(project)
    (disk / "step-1.pt").write_text("x")

    copied = back_up(project, 0, tmp_path / "aside")

    assert copied.files == 1
    assert (tmp_path / "aside" / "checkpoints" / "step-1.pt").read_text() == "x"


def test_what_cannot_be_copied_is_said(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("x")
    (tmp_path / "aside").write_text("in the way")

    with pytest.raises(RocsteadyError, match="cannot be backed up"):
        back_up(tmp_path, 0, tmp_path / "aside")


@pytest.mark.parametrize(
    ("name", "when", "wrote"),
    [("model.pt", 300, True), ("model.pt", 100, False), ("loss.csv", 300, False)],
)
def test_a_new_model_is_known_by_its_name(
    tmp_path: Path, name: str, when: int, *, wrote: bool
) -> None:
    (tmp_path / name).write_text("x")
    os.utime(tmp_path / name, (when, when))

    assert wrote_model(tmp_path, 200) is wrote


def test_what_another_program_has_removed_meanwhile_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "own.pt").write_text("x")
    files = [tmp_path / "removed.pt", tmp_path / "own.pt"]

    copied = copy_files(files, tmp_path, tmp_path / "aside")

    assert copied == {str(tmp_path / "own.pt"): "own.pt"}


def test_holes_are_not_copied(tmp_path: Path) -> None:
    with (tmp_path / "cache.bin").open("wb") as stream:
        stream.truncate(1 << 40)
        stream.seek(1 << 30)
        stream.write(b"data")

    copied = back_up(tmp_path, 0, tmp_path / "aside", at_most=1 << 20)

    assert copied.files == 1
    copy = tmp_path / "aside/cache.bin"
    assert copy.stat().st_size == 1 << 40
    assert copy.stat().st_blocks == (tmp_path / "cache.bin").stat().st_blocks
    with copy.open("rb") as stream:
        stream.seek((1 << 30) - 1)
        assert stream.read(6) == b"\0data\0"
