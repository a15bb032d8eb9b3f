from __future__ import annotations

import os
import platform
import sqlite3
import stat
import struct
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rocsteady.errors import JournalError
from rocsteady.model import Strategy
from rocsteady.store import location as place_module
from rocsteady.store.account_records import UsedFile, keep, kept
from rocsteady.store.journal import Journal
from rocsteady.store.location import (
    Place,
    existing_places,
    find_place,
    is_network,
    make_run_folder,
    run_folder,
)
from rocsteady.store.machine_history import memory_to_read
from rocsteady.system.logfile import LogFile

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and owners")


def local(_: Path) -> str:
    return "ext4"


def network_at(folder: Path) -> object:
    return lambda path: "nfs4" if folder in (path, *path.parents) else "ext4"


def project_in(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


def other_format(path: Path) -> bytes:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE runs (name TEXT)")
        connection.execute("PRAGMA user_version = 5")
    return path.read_bytes()


def rollback_journal(deletes: Path, pages: int) -> bytes:
    """Return what SQLite takes for the rest of a transaction over several databases."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(deletes)
    header = magic + struct.pack(">5I", 0, 0, pages, 512, 4096)
    last = struct.pack(">I", 2**30 // 4096 + 1) + name + struct.pack(">2I", len(name), sum(name))
    return header.ljust(512, b"\0") + last + magic


@posix
def test_a_file_that_a_rollback_journal_names_stays(tmp_path: Path) -> None:
    """SQLite deletes it when it opens the database: a journal may come with a project."""
    project, precious = project_in(tmp_path), tmp_path / "precious"
    place = find_place(project, state=tmp_path / "state", filesystem=local)
    with closing(Journal(place)) as journal:
        journal.begin_run(("python", "t.py"), job={}, strategy=Strategy())
    trap = place.database.with_name(f"{place.database.name}-journal")

    def set_up() -> None:
        precious.write_text("years of work")
        trap.write_bytes(rollback_journal(precious, place.database.stat().st_size // 4096))

    for opened in (lambda: None, lambda: find_place(project, state=tmp_path / "state")):
        set_up()
        opened()
        with closing(Journal(place)) as journal, pytest.raises(JournalError, match="names another"):
            journal.runs()
        assert precious.exists()
    trap.unlink()
    os.mkfifo(trap)
    with closing(Journal(place)) as journal, pytest.raises(JournalError, match="not a regular"):
        journal.runs()

    trap.unlink()
    set_up()
    with closing(sqlite3.connect(place.database)) as connection:  # the trap is a real one
        connection.execute("SELECT * FROM runs").fetchall()
    assert not precious.exists()


@posix
def test_a_file_that_is_hard_linked_beside_a_journal_stays(tmp_path: Path) -> None:
    project, precious = project_in(tmp_path), tmp_path / "precious"
    place = find_place(project, state=tmp_path / "state", filesystem=local)
    with closing(Journal(place)) as journal:
        journal.begin_run(("python", "t.py"), job={}, strategy=Strategy())
    precious.write_text("years of work")
    beside = place.database.with_name(f"{place.database.name}-shm")
    beside.unlink(missing_ok=True)
    beside.hardlink_to(precious)

    with closing(Journal(place)) as journal, pytest.raises(JournalError, match="another name"):
        journal.runs()
    assert precious.read_text() == "years of work"


@posix
def test_only_this_account_reads_what_a_run_leaves(tmp_path: Path) -> None:
    place = find_place(project_in(tmp_path), state=tmp_path / "state", filesystem=local)
    folder = place.folder / "runs" / "calm-otter"
    folder.mkdir(parents=True)
    log = folder / "attempt-1.log"  # as it comes out of somebody's archive
    log.touch()
    for path in (folder.parent, folder, log):
        path.chmod(0o777)

    made = make_run_folder(place.folder, "calm-otter")
    LogFile(made / "attempt-1.log").close(within=5.0)

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, log)]
    assert modes == [0o700, 0o700, 0o600]


@posix
@pytest.mark.skipif("os.geteuid() != 0", reason="only root gives files away")
def test_nothing_is_written_into_what_belongs_to_another_user(tmp_path: Path) -> None:
    place = find_place(project_in(tmp_path), state=tmp_path / "state", filesystem=local)
    folder = make_run_folder(place.folder, "calm-otter")
    log = folder / "attempt-1.log"
    log.touch()
    os.chown(log, 65534, -1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        LogFile(log)
    os.chown(folder, 65534, -1)
    with pytest.raises(JournalError, match="belongs to another user"):
        make_run_folder(place.folder, "calm-otter")


@pytest.mark.parametrize("name", ["../../../other", "/home/alice/other", "x/../../y", ""])
def test_a_name_in_a_journal_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    place = find_place(project_in(tmp_path), state=tmp_path / "state", filesystem=local)
    with pytest.raises(JournalError, match="is not a name"):
        run_folder(place.folder, name)


def test_a_journal_and_a_memory_of_another_format_are_set_aside_as_they_are(tmp_path: Path) -> None:
    project, state = project_in(tmp_path), tmp_path / "state"
    files = (project / ".rocsteady" / "journal.db", state / "memory.db")
    before = [other_format(path) for path in files]
    asides = [path.with_name(f"{path.name}.other-format-1") for path in files]

    (found,) = existing_places(project, state=state, filesystem=local)
    with pytest.raises(JournalError, match="format 5, not 1"), closing(Journal(found)) as journal:
        journal.runs()
    assert memory_to_read(state).observations("m") == ()
    place = find_place(project, state=state, filesystem=local)

    assert [aside.read_bytes() for aside in asides] == before
    assert place.notes == tuple(
        f"{path} has another format; it was not read, and is kept as {aside.name}"
        for path, aside in zip(files, asides, strict=True)
    )
    with closing(Journal(place)) as journal:
        journal.begin_run(("true",), job={}, name="calm-otter")
        assert [line.run.name for line in journal.runs()] == ["calm-otter"]
    assert find_place(project, state=state, filesystem=local).notes == ()


def test_it_lives_in_the_project_private_and_unseen_by_git(tmp_path: Path) -> None:
    project, state = project_in(tmp_path), tmp_path / "state"

    place = find_place(project, state=state, filesystem=local)

    assert place == Place(
        folder=project / ".rocsteady",
        database=project / ".rocsteady" / "journal.db",
        wal=True,
        memory=state / "memory.db",
        memory_writable=True,
    )
    assert (place.folder / ".gitignore").read_text() == "*\n"


@posix
def test_only_the_user_may_look_even_if_the_folder_was_open_before(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    (project / ".rocsteady").mkdir(mode=0o755)

    place = find_place(project, state=tmp_path / "state", filesystem=local)

    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_a_project_that_cannot_be_written_has_its_journal_in_the_state_folder(
    tmp_path: Path,
) -> None:
    project, state = project_in(tmp_path), tmp_path / "state"
    (project / ".rocsteady").write_text("in the way")

    place = find_place(project, state=state, filesystem=local)

    assert place.folder.parent == state / "projects"
    assert place.folder.name.startswith("project-")
    assert place.notes == (
        f"{project}/.rocsteady is not a folder",
        f"the journal is kept in {place.folder}",
    )


def test_two_projects_of_one_name_do_not_share_a_journal(tmp_path: Path) -> None:
    folders = set()
    for parent in ("a", "b"):
        project = tmp_path / parent / "project"
        project.mkdir(parents=True)
        (project / ".rocsteady").write_text("in the way")
        folders.add(find_place(project, state=tmp_path / "state", filesystem=local).folder)

    assert len(folders) == 2


@posix
def test_a_link_or_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, state = project_in(tmp_path), tmp_path / "state"
    (tmp_path / "elsewhere").mkdir()
    (project / ".rocsteady").symlink_to(tmp_path / "elsewhere")

    assert find_place(project, state=state, filesystem=local).folder.parent == state / "projects"

    (project / ".rocsteady").unlink()
    (project / ".rocsteady").mkdir(mode=0o700)
    (state / "projects").chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)  # to be another user takes root
    with pytest.raises(JournalError, match="belongs to another user"):
        find_place(project, state=state, temporary=state, filesystem=local)


@posix
def test_what_was_agreed_to_is_read_from_a_folder_of_ones_own_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    job, state = tmp_path / "rocsteady.toml", tmp_path / "rocsteady"
    keep(UsedFile(sha256="0"), job)
    assert kept(UsedFile, job) is not None

    state.chmod(0o777)
    assert kept(UsedFile, job) is None

    state.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert kept(UsedFile, job) is None


def test_on_a_network_the_database_is_in_the_local_state_folder(tmp_path: Path) -> None:
    project, state = project_in(tmp_path), tmp_path / "state"

    place = find_place(project, state=state, filesystem=network_at(project))  # type: ignore[arg-type]

    assert place.folder == project / ".rocsteady" / "hosts" / platform.node()
    assert place.database.parent.parent == state / "projects"
    assert place.wal
    assert place.notes == (
        f"{place.folder} is on nfs4: the database is in {place.database.parent}",
    )


def test_with_home_on_the_network_too_no_two_hosts_share_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, state = project_in(tmp_path), tmp_path / "state"
    places = []
    for host in ("node1", "node2"):
        monkeypatch.setattr(platform, "node", lambda name=host: name)
        places.append(find_place(project, state=state, filesystem=lambda _: "lustre"))
        places[-1].database.touch()
        (found,) = existing_places(project, state=state, filesystem=lambda _: "lustre")
        assert (found.folder, found.database) == (places[-1].folder, places[-1].database)

    assert not any(place.wal for place in places)
    for field in ("folder", "database", "memory"):
        assert len({getattr(place, field) for place in places}) == 2


def test_a_read_only_home_means_no_memory_and_is_said(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    (tmp_path / "home").write_text("not a folder: root ignores modes")

    place = find_place(project, state=tmp_path / "home" / "state", filesystem=local)

    assert place.folder == project / ".rocsteady"
    assert place.memory is None
    assert "cannot remember results for this machine" in place.notes[0]
    assert place.notes[0].endswith("works without")


def test_what_was_learned_is_still_read_from_a_home_that_became_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "memory.db").touch()
    make = place_module.make_private

    def refuse_home(folder: Path) -> None:  # root may write anywhere
        if folder == state:
            raise PermissionError(13, "Read-only file system", str(folder))
        make(folder)

    monkeypatch.setattr(place_module, "make_private", refuse_home)
    place = find_place(project_in(tmp_path), state=state, filesystem=local)

    assert (place.memory, place.memory_writable) == (state / "memory.db", False)


def test_the_temporary_folder_is_the_last_resort_and_nowhere_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    place = find_place(blocked / "p", state=blocked / "s", temporary=tmp_path, filesystem=local)

    assert place.folder.parent == tmp_path
    assert place.notes[2].endswith("until the machine is restarted")
    with pytest.raises(JournalError, match="no folder for the journal is writable"):
        find_place(blocked / "p", state=blocked / "s", temporary=blocked, filesystem=local)


@pytest.mark.parametrize(
    ("filesystem", "expected"),
    [("ext4", False), ("btrfs", False), ("overlay", False), ("fuseblk", False), ("", False)]
    + [
        (name, True)
        for name in ("nfs", "nfs4", "cifs", "lustre", "fuse", "fuse.sshfs", "9p", "gpfs")
    ],
)
def test_file_systems_that_are_reached_over_a_network(filesystem: str, *, expected: bool) -> None:
    assert is_network(filesystem, Path("/x")) is expected
