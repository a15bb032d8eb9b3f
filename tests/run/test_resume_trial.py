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

from rocsteady.errors import RocsteadyError
from rocsteady.hangs.heartbeat_pages import CheckpointRead
from rocsteady.run.checkpoints.resume_detection import ResumeMethod, ResumeSign
from rocsteady.run.checkpoints.resume_trial import (
    COPIES,
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


def beats(step: int) -> tuple[Any, ...]:
    return (SimpleNamespace(step=step),)


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
    trial.seen(59.0, beats(40), read(tmp_path, SINCE - 10))
    before = trial.started_over
    trial.seen(62.0, beats(50), read(tmp_path, SINCE - 10))

    assert not before
    assert trial.started_over == "it made steps without reading a checkpoint"


def test_a_checkpoint_that_it_has_just_written_itself_proves_nothing(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    own = read(tmp_path, time.time() + 5)

    trial.seen(1.0, beats(1), None)
    trial.seen(6.0, beats(40), own)
    before = trial.proven
    trial.seen(62.0, beats(50), own)

    assert not before
    assert trial.started_over == "it made steps without reading a checkpoint"


def test_a_checkpoint_that_is_copied_at_the_start_proves_the_way(
    trial: ResumeTrial, tmp_path: Path
) -> None:
    trial.seen(1.0, (), read(tmp_path, time.time() + 5))

    assert trial.proven


def test_a_start_without_steps_is_not_judged(trial: ResumeTrial) -> None:
    for now in (1.0, 100.0, 1000.0):
        trial.seen(now, beats(0), None)
    trial.ended(None, steps=False)

    assert not trial.started_over


def test_what_it_wrote_over_is_put_back(trial: ResumeTrial, tmp_path: Path) -> None:
    project, records = tmp_path / "project", tmp_path / "records"
    (project / "last.pt").write_bytes(b"step 10")
    (project / "log.csv").write_text("1\n")
    (project / "new.pt").write_bytes(b"of the attempt")

    trial.seen(1.0, beats(10), None)
    trial.put_back(2)

    assert trial.started_over == "it wrote over last.pt without reading a checkpoint"
    assert (project / "last.pt").read_bytes() == b"step 200"
    assert (project / "log.csv").read_text() == "1\n2\n"
    assert not (project / "new.pt").exists()
    aside = {path.name: path.read_bytes() for path in (records / "started-over-2").rglob("*.*")}
    assert aside == {"last.pt": b"step 10", "log.csv": b"1\n", "new.pt": b"of the attempt"}


def test_what_it_deleted_is_put_back(trial: ResumeTrial, tmp_path: Path) -> None:
    (tmp_path / "project/last.pt").unlink()
    trial.seen(1.0, (), None)
    trial.put_back(2)

    assert trial.started_over
    assert (tmp_path / "project/last.pt").read_bytes() == b"step 200"


@pytest.mark.usefixtures("trial")
def test_a_supervisor_that_was_killed_meanwhile_leaves_the_copies_to_the_next(
    tmp_path: Path,
) -> None:
    (tmp_path / "project/last.pt").write_bytes(b"step 10")

    assert put_back(tmp_path / "project", tmp_path / "records", 3)
    assert (tmp_path / "project/last.pt").read_bytes() == b"step 200"
    assert not put_back(tmp_path / "project", tmp_path / "records", 4)


def test_no_room_for_the_copies_is_no_restart(
    trial: ResumeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=(1 << 30) + 3)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    with pytest.raises(RocsteadyError, match="no room to copy"):
        trial.prepare(Path("last.pt"))


def test_with_little_room_the_checkpoint_and_small_files_are_copied(
    trial: ResumeTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "project/old.pt").open("wb") as stream:
        os.ftruncate(stream.fileno(), 200 << 20)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=(1 << 30) + 100, total=0)
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
    (data / "last.pt").write_bytes(b"step 10")

    trial.put_back(2)

    assert (data / "last.pt").read_bytes() == b"step 200"
    assert (tmp_path / "records/started-over-2/out/last.pt").read_bytes() == b"step 10"


def test_copies_that_this_account_has_not_made_are_not_put_back(tmp_path: Path) -> None:
    project, records = tmp_path / "project", tmp_path / "records"
    (records / COPIES).mkdir(parents=True)
    (records / COPIES / "last.pt").write_bytes(b"somebody's")
    project.mkdir()

    assert not put_back(project, records, 2)
    assert list(project.iterdir()) == []
