"""The first restart by a way that was only read from the text: a mistake costs nothing."""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rocsteady_train.inside import wire

from rocsteady.errors import RocsteadyError
from rocsteady.hangs.heartbeat_pages import CheckpointRead
from rocsteady.run.checkpoints import resume_trial
from rocsteady.run.checkpoints.resume_detection import ResumeMethod, ResumeSign
from rocsteady.run.checkpoints.resume_trial import (
    COPIES,
    NOTES,
    ResumeTrial,
    SavedMethod,
    put_back,
)
from rocsteady.store.account_records import keep, kept

SINCE = 1000.0
WITHIN = timedelta(seconds=60)


@pytest.fixture
def trial(tmp_path: Path) -> ResumeTrial:
    """Give a trial of a run that has written a checkpoint and a log."""
    folder, records = tmp_path / "project", tmp_path / "records"
    for made in (folder, records):
        made.mkdir()
    (folder / "last.pt").write_bytes(b"step 200")
    (folder / "log.csv").write_text("1\n2\n")
    keep(SavedMethod(method=ResumeMethod(how=ResumeSign.OPTION)), records)
    trial = ResumeTrial(folder, records, SINCE, WITHIN)
    trial.prepare(Path("last.pt"))
    return trial


def beats(step: int, rank: int | None = None) -> tuple[Any, ...]:
    return (SimpleNamespace(step=step, rank=rank),)


def noted(tmp_path: Path, name: str, what: str = wire.WRITTEN) -> Path:
    """Note that the attempt is about to change a file, as its hooks do."""
    path = Path(os.path.normpath(tmp_path / "project" / name))
    about = path.stat() if path.exists() else None
    before = f"{about.st_mtime_ns} {about.st_size}" if about else wire.ABSENT
    with (tmp_path / "records" / NOTES).open("ab") as notes:
        notes.write(f"{what} {before} {path}\0".encode())
    return path


def read(folder: Path, written: float) -> CheckpointRead:
    return CheckpointRead(path=str(folder / "last.pt"), written=int(written * 1e9))


def test_a_checkpoint_of_the_run_that_is_read_proves_the_way(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    assert (tmp_path / "records" / COPIES / "last.pt").read_bytes() == b"step 200"

    trial.seen(1.0, (), None)
    trial.seen(2.0, beats(1), read(tmp_path, SINCE + 1))
    (tmp_path / "project/last.pt").write_bytes(b"step 210, saved over")
    trial.seen(200.0, beats(99), read(tmp_path, SINCE + 1))

    assert (trial.proven, trial.started_over) == (True, "")
    saved = kept(SavedMethod, tmp_path / "records")
    assert saved is not None
    assert saved.proven
    assert not (tmp_path / "records" / COPIES).exists()


def test_a_checkpoint_from_before_the_run_proves_nothing(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    trial.seen(1.0, beats(1), read(tmp_path, SINCE - 10))
    trial.seen(59.0, beats(2), read(tmp_path, SINCE - 10))
    before = trial.started_over
    trial.seen(62.0, beats(3), read(tmp_path, SINCE - 10))

    assert not before
    assert trial.started_over == "it made steps without reading a checkpoint"


def test_a_checkpoint_that_it_has_just_written_itself_proves_nothing(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    own = read(tmp_path, time.time() + 5)

    trial.seen(1.0, beats(1), None)
    trial.seen(6.0, beats(4), own)
    before = trial.proven
    trial.seen(62.0, beats(5), own)

    assert not before
    assert trial.started_over == "it made steps without reading a checkpoint"


def test_a_checkpoint_that_is_copied_at_the_start_proves_the_way(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    trial.seen(1.0, (), read(tmp_path, time.time() + 5))

    assert trial.proven


def read_unseen(tmp_path: Path) -> Path:
    """Have the kernel note that a checkpoint was read, as where access times are kept."""
    path = tmp_path / "project" / "last.pt"
    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    return path


def test_one_that_is_read_in_a_way_that_no_hook_sees_proves_it_too(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    trial.seen(1.0, (), None)
    path = read_unseen(tmp_path)
    trial.seen(2.0, beats(1), None)
    path.write_bytes(b"step 210, saved over")  # before it is judged
    trial.seen(3.0, beats(wire.LATE), None)

    assert (trial.proven, trial.started_over) == (True, "")


def test_on_a_network_drive_the_time_of_access_proves_nothing(
    trial: ResumeTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may note only later that the file was copied."""
    monkeypatch.setattr(resume_trial, "filesystem_of", lambda _: "nfs4")
    trial = ResumeTrial(tmp_path / "project", tmp_path / "records", SINCE, WITHIN)
    trial.prepare(Path("last.pt"))
    read_unseen(tmp_path)
    trial.seen(2.0, beats(wire.LATE), None)

    assert trial.started_over == "it made steps without reading a checkpoint"


def test_one_that_was_only_copied_proves_nothing(trial: ResumeTrial, tmp_path: Path) -> None:
    assert (tmp_path / "records" / COPIES / "last.pt").is_file()
    trial.seen(2.0, beats(wire.LATE), None)

    assert trial.started_over == "it made steps without reading a checkpoint"


def test_an_attempt_that_ends_early_is_judged_by_what_it_read(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    read_unseen(tmp_path)
    trial.seen(1.0, beats(1), None)
    trial.ended(beats(2), None)

    assert (trial.proven, trial.started_over) == (True, "")


def test_one_that_torch_loaded_for_its_weights_proves_nothing(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    read_unseen(tmp_path)
    trial.seen(1.0, (), None)  # while it is loaded
    noted(tmp_path, "last.pt", wire.LOOKED_INTO)
    trial.seen(2.0, beats(wire.LATE), None)

    assert trial.started_over == "it made steps without reading a checkpoint"


def test_one_that_was_written_over_proves_nothing(trial: ResumeTrial, tmp_path: Path) -> None:
    path = read_unseen(tmp_path)
    path.write_bytes(b"step 10")
    trial.seen(2.0, beats(wire.LATE), None)

    assert trial.started_over == "it made steps without reading a checkpoint"


def test_a_start_without_steps_is_not_judged(trial: ResumeTrial) -> None:
    for now in (1.0, 100.0, 1000.0):
        trial.seen(now, beats(0), None)
    trial.ended(beats(0), None)

    assert not trial.started_over


def test_its_first_steps_are_enough_to_tell(trial: ResumeTrial) -> None:
    """A script may make a few to build its optimizer's state, and load only then."""
    trial.seen(1.0, beats(wire.LATE - 1), None)
    before = trial.started_over
    trial.seen(1.2, beats(wire.LATE), None)

    assert not before
    assert trial.started_over == "it made steps without reading a checkpoint"


def test_a_rank_that_is_given_what_the_first_one_has_read_is_not_judged(
    trial: ResumeTrial,
) -> None:
    for now in (1.0, 100.0, 1000.0):
        trial.seen(now, beats(99, rank=8), None)
    trial.ended(beats(99, rank=8), None)

    assert not trial.started_over


def test_what_it_wrote_over_is_put_back(trial: ResumeTrial, tmp_path: Path) -> None:
    project, records = tmp_path / "project", tmp_path / "records"
    noted(tmp_path, "last.pt").write_bytes(b"step 10")
    noted(tmp_path, "log.csv").write_text("1\n")
    noted(tmp_path, "new.pt").write_bytes(b"of the attempt")

    trial.seen(1.0, beats(10), None)
    undone = trial.put_back(2)

    assert trial.started_over == "it made steps without reading a checkpoint"
    assert (sorted(undone.put_back), undone.left) == (["last.pt", "log.csv"], ())
    assert (project / "last.pt").read_bytes() == b"step 200"
    assert (project / "log.csv").read_text() == "1\n2\n"
    assert not (project / "new.pt").exists()
    aside = {path.name: path.read_bytes() for path in (records / "started-over-2").rglob("*.*")}
    assert aside == {"last.pt": b"step 10", "log.csv": b"1\n", "new.pt": b"of the attempt"}


def test_what_others_write_meanwhile_is_left_and_named(trial: ResumeTrial, tmp_path: Path) -> None:
    project, records = tmp_path / "project", tmp_path / "records"
    (project / "last.pt").write_bytes(b"by another program")
    (project / "log.csv").write_text("1\n2\nrocsteady: resumed\n")
    (project / "new.pt").write_bytes(b"of a sibling")

    trial.seen(1.0, beats(0), None)
    before = trial.started_over
    undone = trial.put_back(2)

    assert not before
    assert (undone.put_back, undone.left) == ((), ("last.pt",))
    assert (project / "last.pt").read_bytes() == b"by another program"
    assert (project / "log.csv").read_text() == "1\n2\nrocsteady: resumed\n"
    assert (project / "new.pt").read_bytes() == b"of a sibling"
    (copy,) = (records / "started-over-2").rglob("*.pt")
    assert copy.read_bytes() == b"step 200"


def test_what_others_wrote_before_it_did_is_not_put_back(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    (tmp_path / "project/last.pt").write_bytes(b"step 220, of another run")
    noted(tmp_path, "last.pt").write_bytes(b"step 10")

    undone = trial.put_back(2)

    assert undone.left == ("last.pt",)
    assert (tmp_path / "project/last.pt").read_bytes() == b"step 10"


def test_what_it_deleted_is_put_back(trial: ResumeTrial, tmp_path: Path) -> None:
    noted(tmp_path, "last.pt", wire.REMOVED).unlink()
    trial.ended(beats(0), None)
    trial.put_back(2)

    assert trial.started_over == "it wrote over last.pt without reading a checkpoint"
    assert (tmp_path / "project/last.pt").read_bytes() == b"step 200"


def test_what_it_deleted_and_wrote_again_is_put_back(trial: ResumeTrial, tmp_path: Path) -> None:
    noted(tmp_path, "last.pt", wire.REMOVED).unlink()
    noted(tmp_path, "last.pt").write_bytes(b"step 10")
    trial.put_back(2)

    assert (tmp_path / "project/last.pt").read_bytes() == b"step 200"


@pytest.mark.usefixtures("trial")
def test_a_supervisor_that_was_killed_meanwhile_leaves_the_copies_to_the_next(
    tmp_path: Path,
) -> None:
    noted(tmp_path, "last.pt").write_bytes(b"step 10")

    assert put_back(tmp_path / "project", tmp_path / "records", 3).put_back == ("last.pt",)
    assert (tmp_path / "project/last.pt").read_bytes() == b"step 200"
    assert put_back(tmp_path / "project", tmp_path / "records", 4).put_back == ()


def test_no_room_for_the_copies_is_no_restart(
    trial: ResumeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=(1 << 30) + 3)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    with pytest.raises(RocsteadyError, match="no room to copy") as refused:
        trial.prepare(Path("last.pt"))
    assert "12 B are needed beside 1 GiB that stay free, and 1 GiB are free" in str(refused.value)


def test_with_little_room_the_checkpoint_and_small_files_are_copied(
    trial: ResumeTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "project/old.pt").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 200 << 20)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=(1 << 30) + 10_000, total=0)
    )

    trial.prepare(Path("last.pt"))

    copies = tmp_path / "records" / COPIES
    assert sorted(path.name for path in copies.iterdir()) == ["last.pt", "log.csv"]


def test_a_link_in_the_way_of_what_is_put_back_is_not_followed(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    project, precious = tmp_path / "project", tmp_path / "precious"
    precious.mkdir()
    (precious / "last.pt").write_bytes(b"mine")
    (project / "inner").mkdir()
    (project / "inner/last.pt").write_bytes(b"step 200")
    trial.prepare(Path("last.pt"))
    noted(tmp_path, "inner/last.pt")
    shutil.rmtree(project / "inner")
    (project / "inner").symlink_to(precious)

    with pytest.raises(RocsteadyError, match="cannot be undone"):
        trial.put_back(2)
    assert (precious / "last.pt").read_bytes() == b"mine"


def test_outputs_behind_a_link_are_put_back_where_they_were(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    project, data = tmp_path / "project", tmp_path / "data"
    data.mkdir()
    (data / "last.pt").write_bytes(b"step 200")
    (project / "out").symlink_to(data)
    trial.prepare(Path("out/last.pt"))
    noted(tmp_path, "../data/last.pt").write_bytes(b"step 10")

    trial.put_back(2)

    assert (data / "last.pt").read_bytes() == b"step 200"
    assert (tmp_path / "records/started-over-2/out/last.pt").read_bytes() == b"step 10"


def test_copies_that_this_account_has_not_made_are_not_put_back(tmp_path: Path) -> None:
    project, records = tmp_path / "project", tmp_path / "records"
    (records / COPIES).mkdir(parents=True)
    (records / COPIES / "last.pt").write_bytes(b"somebody's")
    project.mkdir()

    assert put_back(project, records, 2).put_back == ()
    assert list(project.iterdir()) == []
