"""A journal that came with somebody's archive starts nothing and writes nowhere by itself."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from supervised import Project

SCRIPT = """
    import pathlib, sys
    count = pathlib.Path("starts")
    count.write_text(str(int(count.read_text()) + 1 if count.exists() else 1))
    sys.exit(7)
"""


def resume(project: Project, *words: str) -> tuple[int, str]:
    """Resume as a person does, without ``--yes`` and without a terminal."""
    ended = project.say("run", "--resume", project.name, "--max-attempts", "1", *words)
    return ended.code, ended.err


def starts(project: Project) -> int:
    return int((project.folder / "starts").read_text())


def left_run(project: Project) -> None:
    """Leave a run that failed, with nothing of it running."""
    script = project.script(SCRIPT)
    ended = project.run("--max-attempts", "1", "--no-workarounds", "--", sys.executable, script)
    assert ended.code == 7, ended.err
    assert starts(project) == 1


def another_account(project: Project) -> None:
    """Go on as somebody whose state folder knows nothing of the project."""
    shutil.rmtree(project.home)
    project.home.mkdir()


@pytest.mark.slow
def test_a_run_of_ones_own_is_resumed_without_asking(project: Project) -> None:
    left_run(project)

    resume(project)

    assert starts(project) == 2


@pytest.mark.slow
@pytest.mark.ci
def test_a_run_that_this_account_never_started_is_shown_first(project: Project) -> None:
    left_run(project)
    another_account(project)

    code, said = resume(project)

    assert code == 76
    assert starts(project) == 1
    assert "this account has no record of this run" in said
    assert f"command: {sys.executable} train.py" in said
    assert "Read its command, then use --yes." in said
    resume(project, "--yes")
    assert starts(project) == 2
    kept = [project.folder / ".rocsteady", project.home / ".local" / "state" / "rocsteady"]
    files = [path for folder in kept for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in files if path.stat().st_mode & 0o077} <= {".gitignore"}
    resume(project)  # it was allowed once
    assert starts(project) == 3


@pytest.mark.slow
def test_a_command_that_was_changed_in_the_journal_is_shown_first(project: Project) -> None:
    left_run(project)
    edit(
        project,
        "command",
        json.dumps({"version": 1, "value": ["touch", f"{project.folder}/owned"]}),
    )

    code, said = resume(project)

    assert code == 76
    assert "touch" in said
    assert not (project.folder / "owned").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_paths_in_the_journal_are_not_believed(project: Project, tmp_path: Path) -> None:
    left_run(project)
    elsewhere = tmp_path / "elsewhere"
    edit(project, "folder", str(elsewhere))

    resume(project)

    assert starts(project) == 2
    assert not elsewhere.exists()
    assert list((project.folder / ".rocsteady" / "runs" / project.name).glob("attempt-2.log"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "attempt-2.log"])
def test_a_link_in_the_folder_of_a_run_is_not_followed(
    project: Project, tmp_path: Path, name: str
) -> None:
    left_run(project)
    folder = project.folder / ".rocsteady" / "runs" / project.name
    target = tmp_path / "target"
    before: list[Path] = []
    if name:
        (folder / name).symlink_to(target)
    else:
        folder.rename(target)
        folder.symlink_to(target)
        before = sorted(target.iterdir())

    code, said = resume(project)

    assert code == 76
    assert "is a link" in said
    assert starts(project) == 1
    assert not target.exists() if name else sorted(target.iterdir()) == before


@pytest.mark.slow
def test_a_link_in_the_place_of_all_runs_is_not_followed(project: Project, tmp_path: Path) -> None:
    left_run(project)
    runs, target = project.folder / ".rocsteady" / "runs", tmp_path / "target"
    shutil.rmtree(runs)
    target.mkdir()
    runs.symlink_to(target)

    code, said = resume(project)

    assert code == 76
    assert "is a link" in said
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_a_link_in_the_place_of_the_journal_is_not_followed(
    project: Project, tmp_path: Path, suffix: str
) -> None:
    folder, target = project.folder / ".rocsteady", tmp_path / "target.db"
    folder.mkdir(mode=0o700)
    sqlite3.connect(target).close()
    before = target.read_bytes()
    (folder / f"journal.db{suffix}").symlink_to(target)

    ended = project.run("--", sys.executable, project.script(SCRIPT))

    assert ended.code == 76, ended.err
    assert "is a link" in ended.err
    assert target.read_bytes() == before
    assert not (project.folder / "starts").exists()


def test_stop_ends_no_process_that_is_not_a_supervisor(project: Project) -> None:
    left_run(project)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        born = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        edit(project, "process", f"{number_space()}:{other.pid}:{born}")
        edit(project, "ended", None)

        ended = project.say("stop", project.name)

        assert ended.code == 1, ended.err
        assert "is no longer running" in ended.err
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def number_space() -> str:
    return str(Path("/proc/self/ns/pid").readlink()).removeprefix("pid:[").removesuffix("]")


def edit(project: Project, column: str, value: str | None) -> None:
    with sqlite3.connect(project.folder / ".rocsteady" / "journal.db") as connection:
        connection.execute(f"UPDATE runs SET {column} = ?", (value,))  # noqa: S608 - ours
    connection.close()
