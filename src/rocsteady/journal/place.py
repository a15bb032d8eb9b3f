"""Where the journal lives.

In ``.rocsteady/`` of the project, which is private and which git does not see. If the project
cannot be written, in the user's state folder; if that cannot be written either, in the temporary
folder, for as long as the machine stays up. SQLite's locks and its shared memory cannot be relied
on over a network, so there the database moves to the state folder, and if that is on the network
too it does without the write-ahead log.

A folder that is a link, or somebody else's, is not used: whoever owns it could tell us what to
believe.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

from rocsteady.errors import JournalError
from rocsteady.journal.identity import fingerprint
from rocsteady.journal.writer import sync_folder
from rocsteady.machine.disk_root import DiskRoot
from rocsteady.vocabulary import Value

FOLDER = ".rocsteady"
DATABASE = "journal.db"
MEMORY = "memory.db"
RUNS = "runs"  # a folder for each, below that of the journal
PRIVATE = 0o700
_NETWORK = """
    9p afs afp autofs beegfs ceph cifs coda drvfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2
    orangefs panfs prl_fs pvfs2 smb2 smb3 smbfs vboxsf virtiofs wekafs
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
    only_existing: bool = False,
) -> Place:
    """Find where this project's journal lives, and create the folders unless ``only_existing``."""
    state = state or platformdirs.user_state_path("rocsteady", appauthor=False)
    temporary = temporary or Path(tempfile.gettempdir())
    project = project.absolute()
    notes: list[str] = []
    in_state = state / "projects" / _own_name(project)
    folders = (project / FOLDER, in_state, temporary / f"{_user_name()}-{_own_name(project)}")
    folder = _first_usable(folders, notes, only_existing=only_existing)
    database, wal = folder, True
    if is_network(kind := filesystem(folder), folder):
        database, wal = _local(folder, in_state, kind, filesystem, notes)
    memory, memory_writable = _memory(state, notes)
    return Place(
        folder=folder,
        database=database / DATABASE,
        wal=wal,
        memory=memory,
        memory_writable=memory_writable,
        notes=tuple(notes),
    )


def existing_place(project: Path, *, state: Path | None = None) -> Place | None:
    """Find this project's journal to read it; None if nothing was ever run here. Makes nothing."""
    state = state or platformdirs.user_state_path("rocsteady", appauthor=False)
    project = project.absolute()
    own = _own_name(project)
    temporary = Path(tempfile.gettempdir()) / f"{_user_name()}-{own}"
    folders = (project / FOLDER, state / "projects" / own, temporary)
    if not any(os.path.lexists(folder) for folder in folders):
        return None
    return find_place(project, state=state, only_existing=True)


def is_network(filesystem: str, folder: Path) -> bool:
    """Tell a file system whose locks may be a promise only. FUSE can be anything."""
    return (
        filesystem in NETWORK
        or filesystem.startswith("fuse.")
        or str(folder).startswith(("\\\\", "//"))
    )


def make_private(folder: Path) -> None:
    """Make a folder that only this user sees, or raise ``OSError`` saying why it cannot be one."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True)
        sync_folder(folder.parent)
    except FileExistsError:
        pass
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise OSError(f"{folder} is not a folder")
    if sys.platform != "win32":
        if facts.st_uid != os.geteuid():
            raise OSError(f"{folder} belongs to another user")
        if stat.S_IMODE(facts.st_mode) != PRIVATE:
            folder.chmod(PRIVATE)
    ignore = folder / ".gitignore"
    if not os.path.lexists(ignore):
        ignore.write_text("*\n", encoding="utf-8")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(f"{folder} is not writable")


def make_run_folder(folder: Path, name: str) -> Path:
    """Make the folder of a run, or check the one that is there: a link could lead anywhere."""
    path = folder / RUNS / name
    try:
        for made in (path.parent, path):
            _refuse_link(made)
            made.mkdir(mode=PRIVATE, exist_ok=True)
        for each in path.iterdir():
            _refuse_link(each)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    return path


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise JournalError(f"{path} is a link; rocsteady does not write through links")


def _first_usable(
    folders: tuple[Path, Path, Path], notes: list[str], *, only_existing: bool
) -> Path:
    for number, folder in enumerate(folders):
        if only_existing and not os.path.lexists(folder):
            continue
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
        return in_state, False
    notes.append(f"{folder} is on {kind}: the database is in {in_state}")
    return in_state, True


def _memory(state: Path, notes: list[str]) -> tuple[Path | None, bool]:
    try:
        make_private(state)
    except OSError as error:
        there = (state / MEMORY).is_file()
        kept = "earlier observations are used, but none can be added" if there else "works without"
        notes.append(f"cannot remember results for this machine ({_why(error)}): {kept}")
        return (state / MEMORY if there else None), False
    return state / MEMORY, True


def _why(error: OSError) -> str:
    if error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _own_name(project: Path) -> str:
    """Name a project so that a person finds it and no two are the same."""
    return f"{project.name or 'root'}-{fingerprint(str(project))[:12]}"


def _user_name() -> str:
    if sys.platform == "win32":
        name = "rocsteady"  # its temporary folder is the user's own
    else:
        name = f"rocsteady-{os.geteuid()}"
    return name
