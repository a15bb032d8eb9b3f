"""Run a command over a folder that it cannot change: what it writes goes elsewhere.

Or in place of a folder, where a copy of it is shown instead.

``python overlaid.py ORDER COMMAND...`` becomes the command, in a mount namespace of its own. There
a file system lies over each folder: reads come from it, writes go to another folder. ORDER is JSON
of an ``Order``. It needs the right to mount, or user namespaces that anybody may make, which some
systems forbid; then it ends with 125. Standard library only: it is run by its path.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from typing import NoReturn, TypedDict

CANNOT, NOT_FOUND = 125, 127  # exit codes
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_RDONLY = 442, -100, 0x8000, 1


class Layer(TypedDict):
    """A folder that is to be written over: all are paths that there are."""

    lower: str  # what is read
    upper: str  # where writes go
    work: str  # for the kernel, beside the upper
    at: str  # where the two are seen together


class OverlayOrder(TypedDict):
    layers: list[Layer]
    redirect: bool  # folders that are there can be renamed; not every kernel lets us
    copy: str  # what is shown in place of the folder, without layers; "": nothing
    shown: list[tuple[str, str]]  # what can only be read, and where it is seen in the copy
    closed: list[str]  # files and folders that can only be read
    folder: str  # to start in


def main(order: OverlayOrder, command: list[str]) -> NoReturn:
    try:
        options = _own_namespace()
        for path, at in order["shown"]:
            _show_only(path, at)
        if order["copy"]:
            _mount(os.fsencode(order["copy"]), order["folder"], None, MS_BIND | MS_REC, None)
        for number, layer in enumerate(order["layers"]):
            if number:
                _overlay_if_possible(layer, options)
            else:
                _overlay(layer, options + ("redirect_dir=on," if order["redirect"] else ""))
        for path in order["closed"]:
            _show_only(path, path)
        os.chdir(order["folder"])
    except OSError as error:
        sys.stderr.write(f"rocsteady: no overlay: {error.filename or ''} {error.strerror}\n")
        os._exit(CANNOT)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without "#!": a shell runs it so
            os.execv("/bin/sh", ["/bin/sh", *command])  # noqa: S606
        sys.stderr.write(f"rocsteady: {command[0]}: {error.strerror}\n")
        os._exit(NOT_FOUND)


def _own_namespace() -> str:
    """Leave the mounts of everybody else, and return the options that overlays then need."""
    user, group = os.getuid(), os.getgid()
    options = ""
    if _libc.unshare(CLONE_NEWNS) != 0:
        _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWUSER), "unshare")
        _write("setgroups", "deny")
        _write("uid_map", f"{user} {user} 1")
        _write("gid_map", f"{group} {group} 1")
        options = "userxattr,"
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None), "/")
    return options


def _overlay_if_possible(layer: Layer, options: str) -> None:
    try:
        _overlay(layer, options)
    except OSError:  # the folder is on a file system that cannot lie below another
        _show_only(layer["lower"], layer["at"])


def _overlay(layer: Layer, options: str) -> None:
    below = [path for path in _mount_points() if path.startswith(layer["lower"].rstrip("/") + "/")]
    mounted = [(path, _opened(path)) for path in below]  # an overlay does not show what is mounted
    options += f"lowerdir={_opened(layer['lower'])},upperdir={_opened(layer['upper'])}"
    options += f",workdir={_opened(layer['work'])}"
    _mount(b"overlay", layer["at"], b"overlay", 0, options)
    for path, opened in mounted:
        at = layer["at"] + path[len(layer["lower"].rstrip("/")) :]
        _show_only(opened, at)


def _show_only(path: str, at: str) -> None:
    """Show what is at a path somewhere, to be read."""
    _mount(os.fsencode(path), at, None, MS_BIND | MS_REC, None)
    attributes = (ctypes.c_uint64 * 4)(ATTR_RDONLY)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    place = ctypes.c_char_p(os.fsencode(at))
    how = (ctypes.c_long(AT_FDCWD), place, ctypes.c_uint(AT_RECURSIVE), attributes, size)
    _check(_libc.syscall(ctypes.c_long(MOUNT_SETATTR), *how), at)


def _mount(what: bytes, at: str, kind: bytes | None, flags: int, options: str | None) -> None:
    data = None if options is None else os.fsencode(options)
    _check(_libc.mount(what, os.fsencode(at), kind, ctypes.c_ulong(flags), data), at)


def _opened(path: str) -> str:
    """Name a path without the characters that mean something to an overlay."""
    return f"/proc/self/fd/{os.open(path, os.O_PATH)}"


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo", "rb") as mounts:  # noqa: PTH123 - run by its path
        fields = [line.split(b" ") for line in mounts]
    # The kernel writes a space, tab, newline or backslash as three octal digits.
    return [os.fsdecode(each[4].decode("unicode_escape").encode("latin-1")) for each in fields]


def _write(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(text)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


_libc = ctypes.CDLL(None, use_errno=True)

if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
