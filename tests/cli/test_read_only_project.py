"""Runs are found wherever they were recorded, and reading them writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocsteady.model import RunOutcome, Strategy
from rocsteady.run.job.values import Job
from rocsteady.store.journal import Journal
from rocsteady.store.location import existing_places, find_place

READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0" && exec "$@"'


def can_mount() -> bool:
    program = shutil.which("unshare")
    if program is None:
        return False
    tried = subprocess.run([program, "-rm", "true"], capture_output=True, check=False)
    return tried.returncode == 0


mounts = pytest.mark.skipif(not can_mount(), reason="needs a user namespace to mount in")


class Project:
    """A project, its user's home, and the command there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "project", folder / "home"
        self.folder.mkdir()
        self.home.mkdir()
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        self.state = self.home / ".local" / "state" / "rocsteady"

    def rocsteady(self, *words: str, read_only: bool = False) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", "-m", "rocsteady", *words]
        if read_only:
            command = ["unshare", "-rm", "sh", "-c", READ_ONLY, str(self.folder), *command]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
        )

    def names(self) -> list[str]:
        listed = self.rocsteady("status", "--json")
        assert listed.returncode == 0, listed.stderr
        return [line["run"]["name"] for line in json.loads(listed.stdout)["runs"]]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def record(project: Project, name: str) -> None:
    journal = Journal(find_place(project.folder, state=project.state))
    job = Job(command=("true",))
    run = journal.begin_run(job.command, job=job, strategy=Strategy(), name=name)
    journal.end_run(run, RunOutcome.NOT_DONE)
    assert journal.close()


@mounts
def test_a_run_started_in_a_read_only_project_is_found_by_every_command(project: Project) -> None:
    record(project, "calm-otter")
    command = ("run", "--name", "late-heron", "--", sys.executable, "-c", "print('trained')")
    ran = project.rocsteady(*command, read_only=True)
    assert f"journal is kept in {project.state}" in ran.stderr

    assert project.names() == ["late-heron", "calm-otter"]
    assert "late-heron" in project.rocsteady("report").stdout
    assert "late-heron" in project.rocsteady("report", "late-heron", read_only=True).stdout
    assert "calm-otter" in project.rocsteady("report", "calm-otter", read_only=True).stdout
    assert "trained" in project.rocsteady("logs").stdout
    assert "late-heron" in project.rocsteady("watch", "--plain").stdout
    assert "late-heron is not running" in project.rocsteady("stop", "late-heron").stderr


@mounts
def test_reading_needs_no_write_access_and_changes_nothing(project: Project) -> None:
    record(project, "calm-otter")
    (project.folder / ".rocsteady" / ".gitignore").unlink()
    (project.folder / ".rocsteady").chmod(0o755)

    shown = project.rocsteady("report", read_only=True)

    assert shown.returncode == 0, shown.stderr
    assert "calm-otter" in shown.stdout
    shown = project.rocsteady("report")
    assert "calm-otter" in shown.stdout
    assert not (project.folder / ".rocsteady" / ".gitignore").exists()
    assert (project.folder / ".rocsteady").stat().st_mode & 0o777 == 0o755


@mounts
@pytest.mark.parametrize("lost", [(), ("-shm",), ("-shm", "-wal")])
def test_a_write_ahead_log_on_read_only_media_is_read(
    project: Project, lost: tuple[str, ...]
) -> None:
    journal = Journal(find_place(project.folder, state=project.state))
    journal.begin_run(("true",), job={}, strategy=Strategy(), name="calm-otter")
    kept = project.folder / "kept"
    shutil.copytree(project.folder / ".rocsteady", kept)  # as a machine that lost power left it
    assert journal.close()
    shutil.rmtree(project.folder / ".rocsteady")
    kept.rename(project.folder / ".rocsteady")
    for suffix in lost:
        (project.folder / ".rocsteady" / f"journal.db{suffix}").unlink()

    shown = project.rocsteady("status", read_only=True)

    assert shown.returncode == 0, shown.stderr
    assert ("calm-otter" in shown.stdout) == ("-wal" not in lost)


def test_a_run_resumes_where_it_is_recorded(project: Project) -> None:
    (project.folder / ".rocsteady").write_text("in the way")
    record(project, "calm-otter")
    (project.folder / ".rocsteady").unlink()
    record(project, "late-heron")

    project.rocsteady("run", "--yes", "--resume", "calm-otter")

    own, elsewhere = existing_places(project.folder, state=project.state)
    assert not (own.folder / "runs" / "calm-otter").exists()
    assert (elsewhere.folder / "runs" / "calm-otter" / "attempt-1.log").exists()
    assert project.names() == ["late-heron", "calm-otter"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("status",), 0, ""),
        (("status", "--json"), 0, ""),
        (("report",), 2, "no runs in this project"),
        (("report", "calm-otter"), 2, "no run named 'calm-otter': there are no runs"),
        (("stop", "calm-otter"), 2, "no run named 'calm-otter'"),
    ],
)
def test_nothing_is_made_where_nothing_was_run(
    tmp_path: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    environment.pop("XDG_STATE_HOME", None)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "rocsteady", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []
