"""Lay out what goes into the training process, and where, for nobody else to read.

On a tmpfs if one has room: a page on a disk is written back by the kernel, and a beat could then
wait for that disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import struct
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import open_regular, read_regular

from rocsteady import __version__
from rocsteady.errors import RocsteadyError
from rocsteady.hangs.heartbeat_pages import read_notes, read_pages
from rocsteady.hangs.looking.process_tree import with_torch
from rocsteady.model import Value
from rocsteady.system import mounted_drives, procfs

if TYPE_CHECKING:  # watch reads pages, and announces nothing
    from rocsteady.run.telling.announcer import Announcer

PACKAGE = "_rocsteady_inside"
PACKAGES = ("", "heartbeat")  # of inside/ that a training process needs
RENDEZVOUS = "torchrun.py"  # what torchrun needs, beside inside/
SITECUSTOMIZE = "sitecustomize.py"
PREFIX = "rocsteady-"
OWNER_LIMIT = 4096  # bytes
REMOVE_WITHIN = 0.3  # seconds
OWNER = "owner"  # a file that names the supervisor, so that others can tell it from a dead one
IN_MEMORY = ("tmpfs", "ramfs")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - checked
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Injection(Value, frozen=True, kw_only=True):
    site: Path  # to be first on PYTHONPATH
    pages: Path

    def environment(
        self, existing: Mapping[str, str], *, run_id: str, supervisor: int
    ) -> dict[str, str]:
        """Return the variables to add for the training process."""
        theirs = existing.get("PYTHONPATH")  # an empty entry would mean the working folder
        return {
            "PYTHONPATH": os.pathsep.join([str(self.site), theirs] if theirs else [str(self.site)]),
            wire.PAGES: str(self.pages),
            wire.RUN: run_id,
            wire.SUPERVISOR: str(supervisor),
        }


def inject(run_id: str, environment: Mapping[str, str], owner: str) -> Injection:
    """Lay out what one attempt needs where there is room, and leave nothing behind elsewhere."""
    why: OSError | RocsteadyError | None = None
    for folder in runtime_folders(run_id, environment):
        try:
            folder = private_folder(folder)  # noqa: PLW2901 - or another beside it
            claim(folder, owner)
            return lay_out(folder)
        except (OSError, RocsteadyError) as error:
            why = why or error
            if not isinstance(error, RocsteadyError):
                remove(folder)
    raise why or RocsteadyError("there is no folder for heartbeats that can be written to.")


def lay_out(folder: Path) -> Injection:
    """Copy ``inside/`` below ``folder`` and make the folder for pages; an old one is emptied."""
    for name in ("site", "pages"):
        if (folder / name).exists():
            shutil.rmtree(folder / name)
    injection = Injection(site=folder / "site", pages=folder / "pages")
    package = injection.site / PACKAGE
    for made in (injection.site, injection.pages):
        made.mkdir(mode=PRIVATE_FOLDER)
    inside = resources.files("rocsteady_train.inside")
    _write(injection.site / SITECUSTOMIZE, (inside / SITECUSTOMIZE).read_bytes())
    for name in PACKAGES:
        (package / name).mkdir(mode=PRIVATE_FOLDER)
        for source in (inside / name if name else inside).iterdir():
            if source.name.endswith(".py") and source.name != SITECUSTOMIZE:
                _write(package / name / source.name, source.read_bytes())
    _offer_rendezvous(injection.site)
    return injection


def _offer_rendezvous(site: Path) -> None:
    """Lay out the handler for torchrun, and the entry point by which torchrun finds it."""
    source = resources.files("rocsteady_train.integrations") / RENDEZVOUS
    _write(site / PACKAGE / RENDEZVOUS, source.read_bytes())
    about = site / f"rocsteady-{__version__}.dist-info"
    about.mkdir(mode=PRIVATE_FOLDER)
    metadata = f"Metadata-Version: 2.1\nName: rocsteady\nVersion: {__version__}\n"
    _write(about / "METADATA", metadata.encode())
    entry = f"[torchrun.handlers]\nrocsteady = {PACKAGE}.torchrun:get\n"
    _write(about / "entry_points.txt", entry.encode())


def runtime_folders(run_id: str, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where a folder of this run may be: in memory, else in the temporary folder."""
    if RUN_ID.fullmatch(run_id) is None:
        raise RocsteadyError(f"{run_id!r} is not a valid run name.")
    *in_memory, temporary = _places(environment)
    usable = [place for place in in_memory if _is_usable(place)]
    if usable[:1] == in_memory[:1] and not _is_own(usable[0]):
        del usable[0]
    return tuple(place / f"{PREFIX}{run_id}" for place in dict.fromkeys((*usable, temporary)))


def _places(environment: Mapping[str, str]) -> list[Path]:
    temporary = environment.get("TMPDIR") or tempfile.gettempdir()
    return [Path(environment.get("XDG_RUNTIME_DIR", "")), SHARED_MEMORY, Path(temporary)]


def find_pages(run_id: str, environment: Mapping[str, str]) -> Path | None:
    """Return the pages of an attempt under way; None if they are not this user's, or not found."""
    if RUN_ID.fullmatch(run_id) is None:
        return None
    for place in _places(environment):
        if not place.is_absolute():
            continue
        for folder in (place / f"{PREFIX}{run_id}", *place.glob(f"{PREFIX}{run_id}~*")):
            with contextlib.suppress(OSError):
                if _is_own_folder(folder):
                    return folder / "pages"
    return None


def claim(folder: Path, owner: str) -> None:
    """Write down which process made a folder."""
    (folder / OWNER).unlink(missing_ok=True)
    _write(folder / OWNER, owner.encode())


def read_owner(folder: Path) -> str:
    return read_regular(folder / OWNER, OWNER_LIMIT, follow=False).decode()


def sweep(environment: Mapping[str, str], is_alive: Callable[[str], bool | None]) -> None:
    """Remove what supervisors of this user left that were killed; memory is not free."""
    places = {each for each in _places(environment) if each.is_absolute()}
    for folder in (left for place in places for left in place.glob(f"{PREFIX}*")):
        owner = _owner(folder)
        if owner and is_alive(owner) is False:
            _remove(folder)


def remove(folder: Path) -> None:
    """Remove the folder of an attempt, but for what takes too long: the next run sweeps that.

    A script can fill it with any number of files, and the supervisor must end in time.
    """
    removing = threading.Thread(target=_remove, args=(folder,), daemon=True)
    removing.start()
    removing.join(REMOVE_WITHIN)


def _remove(folder: Path) -> None:
    """Remove the name of the owner last: without it nobody could remove the rest."""
    for each in (folder / "pages", folder / "site", folder):
        shutil.rmtree(each, ignore_errors=True)


def _owner(folder: Path) -> str:
    """Return who made a folder of ours; "" if it is not ours, or not claimed yet."""
    try:
        is_ours = not folder.is_symlink() and _is_own(folder)
        return read_owner(folder) if is_ours else ""
    except (OSError, UnicodeDecodeError):
        return ""


def private_folder(folder: Path) -> Path:
    """Return a folder of this user; beside one that somebody else has made, with another name."""
    try:
        with contextlib.suppress(FileExistsError):  # what it is, is checked below
            folder.mkdir(mode=PRIVATE_FOLDER)
        if not _is_own_folder(folder):
            folder = folder.with_name(f"{folder.name}~{secrets.token_hex(8)}")
            folder.mkdir(mode=PRIVATE_FOLDER)
    except OSError as error:
        raise RocsteadyError(f"{folder} cannot be created: {error.strerror}.") from None
    if stat.S_IMODE(folder.lstat().st_mode) != PRIVATE_FOLDER:
        raise RocsteadyError(f"{folder} is accessible to other users; remove it.")
    return folder


def _is_own_folder(folder: Path) -> bool:
    return stat.S_ISDIR(folder.lstat().st_mode) and _is_own(folder)


def _is_own(folder: Path) -> bool:
    return folder.lstat().st_uid == os.getuid()


def _is_usable(folder: Path) -> bool:
    """Return whether a folder is in memory and can be written to."""
    unfit = os.pathsep in str(folder) or not folder.is_absolute() or not folder.is_dir()
    if unfit or not os.access(folder, os.W_OK | os.X_OK):
        return False
    kinds = {Path("/"): "", **mounted_drives.mounts()}
    inside = folder.resolve()
    nearest = next(place for place in (inside, *inside.parents) if place in kinds)
    return kinds[nearest] in IN_MEMORY


def _write(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


# Tells a person where our part did not get into the training, so that its steps are not seen.
#
# ``python -I``, ``-E`` and ``-S`` keep it out, and so does a script that replaces PYTHONPATH.

TORCH_POLL_INTERVAL = 30.0  # seconds between looks for torch without a page


class HeartbeatCheck:
    """Looks for it in one attempt, and says it once."""

    def __init__(self, announcer: Announcer, *, pages: Path | None, began: float) -> None:
        self._announcer, self._pages = announcer, pages
        # None: there is nothing more to say.
        self._due: float | None = began + TORCH_POLL_INTERVAL if pages else None

    def poll(self, tree: Callable[[], Sequence[int]], now: float, *, beats: bool) -> None:
        """Look now and then for a process that has torch, as long as none has a page."""
        if self._due is None or now < self._due:
            return
        self._due = now + TORCH_POLL_INTERVAL
        if not beats:
            pid = next(iter(with_torch(tree())), None)
            if pid is not None and self._pages is not None:
                why, self._due = _why_no_page(pid, self._pages), None
                self._announcer.say(
                    f"process {pid} uses torch, but rocsteady's hooks were not loaded ({why}):"
                    " steps cannot be observed."
                )


def _why_no_page(pid: int, pages: Path) -> str:
    """Return why a process of torch's has no page: as it told, or as far as that can be seen."""
    if why := read_notes(pages).get(pid):
        return why
    with contextlib.suppress(OSError):
        if Path(f"{procfs.PROC}/{pid}").stat().st_uid != pages.stat().st_uid:
            return f"it runs as {procfs.owner(pid) or 'another user'}, who may not enter {pages}"
    return "python -I, -E or -S, or a PYTHONPATH that was replaced"


_SAVE_WORD = struct.Struct("=Q")
_SAVE_OFFSET = wire.W_SAVE * _SAVE_WORD.size


def ask_to_save(pages: Path) -> None:
    """Increase the count by which a training process knows that a save is wanted.

    Before its first step there is nothing to save. Several ranks agree among themselves on when.
    """
    for beat in read_pages(pages):
        if beat.step:
            with contextlib.suppress(OSError):  # it has just ended, say
                _increment_save_word(pages / f"{beat.pid}{wire.SUFFIX}")


def _increment_save_word(page: Path) -> None:
    with open_regular(page, follow=False, writable=True) as stream:
        if os.fstat(stream.fileno()).st_size == wire.SIZE:
            stream.seek(_SAVE_OFFSET)
            (asked,) = _SAVE_WORD.unpack(stream.read(_SAVE_WORD.size))
            stream.seek(_SAVE_OFFSET)
            stream.write(_SAVE_WORD.pack((asked + 1) % (1 << 64)))
