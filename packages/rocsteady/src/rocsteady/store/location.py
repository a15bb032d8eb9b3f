"""Where the journal lives.

In ``.rocsteady/`` of the project, which is private and which git does not see. If the project
cannot be written, in the user's state folder; if that cannot be written either, in the temporary
folder, for as long as the machine stays up. SQLite's locks and its shared memory cannot be relied
on over a network, which other hosts may share. There each host has a folder of its own below
``hosts/``, and the database moves to the state folder. If that is on the network too, it stays in
the host's folder and does without the write-ahead log.

A folder that is a link, or somebody else's, is not used: whoever owns it could tell us what to
believe.
"""

from __future__ import annotations

import os
import platform
import re
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rocsteady.errors import JournalError, RocsteadyError
from rocsteady.model import Value
from rocsteady.store.database import set_aside_other_format
from rocsteady.store.identity import fingerprint
from rocsteady.store.policy import read_policy
from rocsteady.store.run_names import check_name
from rocsteady.store.user_folders import state_folder
from rocsteady.store.writer import sync_folder
from rocsteady.system.disk_root import DiskRoot

FOLDER = ".rocsteady"
DATABASE = "journal.db"
MEMORY = "memory.db"
RUNS = "runs"  # a folder for each, below that of the journal
HOSTS = "hosts"  # likewise, on a network
PRIVATE = 0o700
_NETWORK = """
    9p afs afp autofs beegfs ceph cifs coda drvfs fuse gfs2 glusterfs gpfs lustre ncpfs nfs nfs4
    ocfs2 orangefs panfs prl_fs pvfs2 smb2 smb3 smbfs vboxsf virtiofs wekafs
"""
NETWORK = frozenset(_NETWORK.split())


class Place(Value, frozen=True, kw_only=True):
    """Where things are kept, and what a person should be told of it."""

    folder: Path  # logs and evidence
    database: Path
    wal: bool
    memory: Path | None  # the machine's own memory; None: there is none
    memory_writable: bool
    notes: tuple[str, ...] = ()


def filesystem_of(folder: Path) -> str:
    """Name the file system of a folder; "" if that cannot be known."""
    try:
        return DiskRoot().disk(str(folder)).filesystem
    except OSError:
        return ""


def find_place(
    project: Path,
    *,
    state: Path | None = None,
    temporary: Path | None = None,
    filesystem: Callable[[Path], str] = filesystem_of,
) -> Place:
    """Find where this project's journal lives, and create the folders.

    A journal or a memory of another format is set aside.
    """
    state = state or state_folder()
    notes: list[str] = []
    folders = _folders(project, state, temporary)
    folder = _first_usable(folders, notes)
    database, wal = folder, True
    if is_network(kind := filesystem(folder), folder):
        folder = own_folder(folder)
        make_private(folder)
        database, wal = _local(folder, folders[-2], kind, filesystem, notes)
    memory, memory_writable = _memory(state, filesystem, notes)
    notes += [
        f"{path} has another format; it was not read, and is kept as {aside.name}"
        for path in (database / DATABASE, memory if memory_writable else None)
        if path and (aside := set_aside_other_format(path))
    ]
    return Place(
        folder=folder,
        database=database / DATABASE,
        wal=wal,
        memory=memory,
        memory_writable=memory_writable,
        notes=tuple(notes),
    )


def existing_places(
    project: Path,
    *,
    state: Path | None = None,
    filesystem: Callable[[Path], str] = filesystem_of,
) -> tuple[Place, ...]:
    """Find the journals of this project, to read them. Nothing is made, changed or written.

    There may be several: a project that was read-only, or whose disk was full, had its runs
    recorded elsewhere.
    """
    state = state or state_folder()
    folders = _folders(project, state, None)
    own, in_state = folders[0], folders[-2]
    memory = memory_file(state, filesystem)
    places, notes = [], []
    for folder in (own_folder(own), *folders):
        if not os.path.lexists(folder / DATABASE):
            continue
        try:
            _refuse_foreign(folder)
        except OSError as error:
            notes.append(_why(error))
            continue
        on_network = folder == in_state and is_network(filesystem(own), own) and own.is_dir()
        place = Place(
            folder=own_folder(own) if on_network else folder,
            database=folder / DATABASE,
            wal=not is_network(filesystem(folder), folder),
            memory=memory if is_own(memory.parent) and memory.is_file() else None,
            memory_writable=os.access(memory, os.W_OK),
        )
        places.append(place)
    if notes and not places:
        raise JournalError(f"the journal of this project is not used: {'; '.join(notes)}")
    return tuple(places)


def own_folder(folder: Path) -> Path:
    """Return what belongs to this host of a folder that several may share."""
    return folder / HOSTS / (re.sub(r"[^\w.-]|^\.+", "_", platform.node()) or "host")


def memory_file(state: Path, filesystem: Callable[[Path], str] = filesystem_of) -> Path:
    """Return the file of this machine's memory, which no two hosts have in common."""
    is_shared = is_network(filesystem(state), state)
    return (own_folder(state) if is_shared else state) / MEMORY


def has_journal(project: Path) -> bool:
    """Return whether something was run here, wherever that was recorded."""
    state = state_folder()
    return any(folder.is_dir() for folder in _folders(project, state, None))


def is_network(filesystem: str, folder: Path) -> bool:
    """Return whether the locks of a file system may not hold. FUSE can be anything."""
    return (
        filesystem in NETWORK
        or filesystem.startswith("fuse.")
        or str(folder).startswith(("\\\\", "//"))
    )


def make_private(folder: Path) -> None:
    """Make a folder that only this user sees, or raise ``OSError`` saying why it cannot be one."""
    _make_own(folder)
    ignore = folder / ".gitignore"
    if not os.path.lexists(ignore):
        ignore.write_text("*\n", encoding="utf-8")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(f"{folder} is not writable")


def _make_own(folder: Path) -> None:
    try:
        folder.mkdir(mode=PRIVATE, parents=True)
        sync_folder(folder.parent)
    except FileExistsError:
        pass
    mode = _refuse_foreign(folder)
    if sys.platform != "win32" and stat.S_IMODE(mode) != PRIVATE:
        folder.chmod(PRIVATE)


def make_run_folder(folder: Path, name: str) -> Path:
    """Make the folder of a run, or check the one that is there: a link could lead anywhere."""
    path = folder / RUNS / name
    try:
        for made in (path.parent, path):
            _refuse_link(made)
            _make_own(made)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from None
    return run_folder(folder, name)


def run_folder(folder: Path, name: str) -> Path:
    """Return the folder of a run; a link in its path or in it, or any name, could lead anywhere."""
    path = folder / RUNS / check_name(name)
    try:
        for each in (path.parent, path, *(path.iterdir() if path.is_dir() else ())):
            _refuse_link(each)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    return path


def check_own(records: Path) -> None:
    """Raise ``RocsteadyError`` if the folder of a run has become a link, or somebody else's.

    In a project that others can write to, they can put another folder in place of ours.
    """
    above = records.parents[:2] if records.parent.name == RUNS else ()
    try:
        for each in (records, *above):
            _refuse_foreign(each)
    except FileNotFoundError:  # there is nothing that could mislead us
        return
    except OSError as error:
        raise RocsteadyError(f"{_why(error)}; it was not so when the run began") from None


def is_own(folder: Path) -> bool:
    """Whether a folder is this user's, and nobody else can write to it."""
    try:
        mode = _refuse_foreign(folder)
    except OSError:
        return False
    return sys.platform == "win32" or not mode & (stat.S_IWGRP | stat.S_IWOTH)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise JournalError(f"{path} is a link; rocsteady does not follow links there")


def _refuse_foreign(folder: Path) -> int:
    """Raise ``OSError`` unless it is a folder, no link, and this user's own; return its mode."""
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise OSError(f"{folder} is not a folder")
    if sys.platform != "win32" and facts.st_uid != os.geteuid():
        raise OSError(f"{folder} belongs to another user")
    return facts.st_mode


def _folders(project: Path, state: Path, temporary: Path | None) -> tuple[Path, ...]:
    """Return where a journal may lie, best first: in the project, at home, in the temporary one.

    An administrator's folder comes before all of them.
    """
    project, temporary = project.absolute(), temporary or Path(tempfile.gettempdir())
    own = f"{project.name or 'root'}-{fingerprint(str(project))[:12]}"  # found by a person, unique
    # On Windows the temporary folder is the user's own.
    users = f"rocsteady-{own}" if sys.platform == "win32" else f"rocsteady-{os.geteuid()}-{own}"
    journals = read_policy().journals
    first = (journals / users,) if journals else ()
    return *first, project / FOLDER, state / "projects" / own, temporary / users


def _first_usable(folders: tuple[Path, ...], notes: list[str]) -> Path:
    for number, folder in enumerate(folders):
        try:
            make_private(folder)
        except OSError as error:
            notes.append(_why(error))
            continue
        if number:
            until = ", until the machine is restarted" if folder == folders[-1] else ""
            notes.append(f"the journal is kept in {folder}{until}")
        return folder
    raise JournalError(f"no folder for the journal is writable: {'; '.join(notes)}")


def _local(
    folder: Path,
    in_state: Path,
    kind: str,
    filesystem: Callable[[Path], str],
    notes: list[str],
) -> tuple[Path, bool]:
    """Return a folder for the database that is not on a network, and whether it may have a WAL."""
    try:
        make_private(in_state)
    except OSError as error:
        notes.append(f"{_why(error)}; keeping the journal on {kind}, without a write-ahead log")
        return folder, False
    if is_network(filesystem(in_state), in_state):
        notes.append(f"home is on a network too ({kind}): the journal has no write-ahead log")
        return folder, False
    notes.append(f"{folder} is on {kind}: the database is in {in_state}")
    return in_state, True


def _memory(
    state: Path, filesystem: Callable[[Path], str], notes: list[str]
) -> tuple[Path | None, bool]:
    path = state / MEMORY
    try:
        make_private(state)
        path = memory_file(state, filesystem)
        make_private(path.parent)
    except OSError as error:
        there = is_own(path.parent) and path.is_file()
        rest = "earlier observations are used, but none can be added" if there else "works without"
        notes.append(f"cannot remember results for this machine ({_why(error)}): {rest}")
        return (path if there else None), False
    return path, True


def _why(error: OSError) -> str:
    if error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
