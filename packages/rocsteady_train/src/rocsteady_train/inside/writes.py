"""Which files this process writes, renames or removes, in a restart that may have to be undone.

Each is noted right before that happens, with the time and the size that it has until then. The
functions of Python by which it happens are ours until a checkpoint was read, or the supervisor has
taken the list away. What C libraries and other programs write is not known here.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
from typing import Any

from . import wire
from .heartbeat.script_end import PASSED_OVER

LIST = os.environ.get(wire.WRITES, "")
CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
APPENDING = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
MAX_NOTED = 10_000  # files; those after them stay as they are
# Each function: its module, and what happens to the files that its first arguments name.
CHANGES = (
    (builtins, "open", wire.WRITTEN),
    (io, "open", wire.WRITTEN),
    (os, "open", wire.WRITTEN),
    (os, "truncate", wire.WRITTEN),
    (os, "remove", wire.REMOVED),
    (os, "unlink", wire.REMOVED),
    (os, "rmdir", wire.REMOVED),
    (os, "rename", wire.REMOVED + wire.WRITTEN),
    (os, "replace", wire.REMOVED + wire.WRITTEN),
)
_originals: dict[tuple[Any, str], tuple[Any, Any]] = {}
_noted: set[tuple[bytes, str]] = set()
_open = os.open


def start() -> None:
    """Begin to note, if this start may have to be undone."""
    for owner, name, what in () if _originals or not LIST else CHANGES:
        original = getattr(owner, name)
        ours = _noting(original, what)
        functools.update_wrapper(ours, original)
        ours.__code__ = ours.__code__.replace(co_filename=PASSED_OVER)
        ours._torchdynamo_inline = original  # noqa: SLF001 - in a graph the original counts
        _originals[owner, name] = original, ours
        setattr(owner, name, ours)


def stop() -> None:
    """Put the original functions back."""
    while _originals:
        (owner, name), (original, ours) = _originals.popitem()
        if getattr(owner, name) is ours:
            setattr(owner, name, original)


def _noting(original: Any, changes: str) -> Any:
    def changing(*args: Any, **kwargs: Any) -> Any:  # whatever Python has
        _look(original.__name__, changes, args, kwargs)
        return original(*args, **kwargs)

    return changing


def _look(name: str, changes: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note what a call is about to change; one that only reads changes nothing."""
    try:
        how = args[1] if len(args) > 1 else kwargs.get("mode", kwargs.get("flags", "r"))
        reads = how & CHANGING == 0 if isinstance(how, int) else how in ("r", "rb")
        if name == "open" and reads:
            return
        paths = (*args, *(kwargs[key] for key in ("file", "path", "src", "dst") if key in kwargs))
        folders = kwargs.get("dir_fd", kwargs.get("src_dir_fd")), kwargs.get("dst_dir_fd")
        for path, what, folder in zip(paths, changes, folders):
            note(path, what, folder)
    except Exception:  # of a kind that Python does not know either
        return


def note(path: Any, what: str = wire.WRITTEN, folder: Any = None) -> None:
    """Note what is about to happen to a file. What cannot be noted will not be undone."""
    if not _originals or len(_noted) >= MAX_NOTED:
        return
    try:
        name = os.fsdecode(path)
        if folder is not None:
            name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
        if what != wire.REMOVED:
            place = os.path.realpath(name)
        else:  # a link itself is removed
            above, name = os.path.split(os.path.abspath(name))
            place = os.path.join(os.path.realpath(above), name)
        _leave(os.fsencode(place), what)
    except Exception:  # a descriptor in place of a path, say; the script gets its own error
        return


def _leave(place: bytes, what: str) -> None:
    if (place, what) in _noted:
        return
    _noted.add((place, what))
    try:
        about = os.stat(place)
        before = f"{about.st_mtime_ns} {about.st_size}"
    except OSError:
        before = wire.ABSENT
    try:
        notes = _open(LIST, APPENDING)
    except FileNotFoundError:
        stop()
        return
    try:
        os.write(notes, f"{what} {before} ".encode() + place + b"\0")
    finally:
        os.close(notes)
