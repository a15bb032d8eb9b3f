from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from rocsteady.errors import JobError
from rocsteady.run.checkpoints.resume import (
    Checkpoint,
    Launch,
    Origin,
    find_checkpoints,
    launch,
    stamp,
    whole_checkpoints,
)
from rocsteady.run.job.job_file import parse_job
from rocsteady.run.job.values import Job

RESUME = """
[resume]
arguments = ["--resume", "{checkpoint}"]
environment = { FROM = "{checkpoint}", MODE = "resume" }
checkpoints = ["checkpoints/*.pt", "*.pt"]
"""


def job(resume: str = RESUME) -> Job:
    return parse_job(f"command = ['python', 'train.py']\n{resume}")


def save(path: Path, at: float, *, cut: int = 0) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"x" * 100)
    path.write_bytes(path.read_bytes()[: -cut or None])
    os.utime(path, (at, at))


def test_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints" / "step-900.pt", 100.0)
    save(tmp_path / "checkpoints" / "step-1000.pt", 100.0)
    save(tmp_path / "checkpoints" / "step-1100.pt", 200.0, cut=40)

    assert newest_checkpoint(job(), tmp_path) == Checkpoint(
        path=Path("checkpoints/step-1000.pt"),
        written=100.0,
        passed_over=("checkpoints/step-1100.pt is cut short or damaged: File is not a zip file",),
    )


def newest_checkpoint(job: Job, folder: Path, origin: Origin | None = None) -> Checkpoint | None:
    return next(whole_checkpoints(job, folder, origin), None)


def test_those_from_before_do_not_count_where_they_are_foreign(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints" / "a.pt", 100.0)
    save(tmp_path / "last.pt", 100.0)
    before = find_checkpoints(job().resume, tmp_path)
    fresh, goes_on = Origin(before=before, foreign=before), Origin(before=before)

    assert newest_checkpoint(job(), tmp_path, fresh) is None
    save(tmp_path / "last.pt", 50.0)  # written again, by a clock that was set back

    found = [newest_checkpoint(job(), tmp_path, each) for each in (fresh, goes_on)]
    assert [each.path for each in found if each] == [Path("last.pt"), Path("last.pt")]
    assert newest_checkpoint(job(), tmp_path) is not None


def test_a_folder_that_was_written_again_is_another_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "a").write_text("x")
    before = stamp(tmp_path, Path("ck"))
    with (tmp_path / "ck" / "a").open("w") as stream:
        stream.write("yy")

    assert stamp(tmp_path, Path("ck")) != before
    assert stamp(tmp_path, Path("gone")) is None


def test_without_a_way_to_resume_or_a_checkpoint_there_is_none(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints" / "a.pt", 100.0)
    (tmp_path / "checkpoints" / "b.pt").symlink_to("gone")

    assert newest_checkpoint(job(""), tmp_path) is None
    assert newest_checkpoint(job(), tmp_path / "elsewhere") is None


def test_the_checkpoint_is_handed_over_as_one_argument() -> None:
    odd = Path("checkpoints/a b; rm -rf {checkpoint} $HOME.pt")

    assert launch(job(), odd) == Launch(
        command=("python", "train.py", "--resume", str(odd)),
        environment={"FROM": str(odd), "MODE": "resume"},
    )
    assert launch(job()) == Launch(command=("python", "train.py"), environment={})


def test_a_checkpoint_that_looks_like_an_option_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "--eval.pt", 100.0)
    found = newest_checkpoint(job(), tmp_path)

    assert found is not None
    with pytest.raises(JobError, match="would be mistaken for an option"):
        launch(job(), found.path)
    with pytest.raises(JobError, match=r"has no \[resume\]"):
        launch(job(""), Path("a.pt"))
