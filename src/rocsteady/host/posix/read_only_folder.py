"""Run a command that cannot change a folder: it and its children may only read there.

``python read_only_folder.py FOLDER COMMAND...`` becomes the command, restricted by the kernel's
Landlock, which needs no right to mount and works in most containers. Landlock knows only what is
allowed, so everything beside the folder and beside each folder above it is. What does not exist yet
cannot be made directly in a folder above it. Without Landlock (Linux 5.19) it ends with 125.
Standard library only: it is run by its path.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from typing import NoReturn

CANNOT, NOT_FOUND = 125, 127  # exit codes
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls
ASK_VERSION, BENEATH, NO_NEW_PRIVILEGES = 1, 1, 38
LEAST_VERSION = 2  # the first that lets files be moved from one folder to another
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
# Write, remove and make files of every kind, and move them. Devices stay as they are: GPUs need it.
CHANGE = WRITE_FILE | sum(1 << bit for bit in range(4, 14))
WITH_TRUNCATE = 3  # the version that has it
MOST_ENTRIES = 50_000  # beside the folders above


def main(folder: str, command: list[str]) -> NoReturn:
    """Close the folder, and become the command."""
    try:
        _close(os.path.realpath(folder))
    except OSError as error:
        sys.stderr.write(f"rocsteady: {folder} cannot be made read-only: {error.strerror}\n")
        os._exit(CANNOT)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command
    except OSError as error:
        sys.stderr.write(f"rocsteady: {command[0]}: {error.strerror}\n")
        os._exit(NOT_FOUND)


def _close(folder: str) -> None:
    version = _called(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_VERSION))
    if version < LEAST_VERSION:
        raise OSError(0, "this kernel is too old")
    handled = CHANGE | (TRUNCATE if version >= WITH_TRUNCATE else 0)
    rules = (ctypes.c_uint64 * 1)(handled)
    ruleset = _called(CREATE_RULESET, rules, ctypes.c_size_t(8), ctypes.c_uint32(0))
    for count, path in enumerate(_beside(folder)):
        if count >= MOST_ENTRIES:
            raise OSError(0, "there are too many files beside it")
        _allow(ruleset, path, handled)
    if _libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    _called(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


def _beside(folder: str) -> list[str]:
    """Return all that stands beside a folder and beside the folders above it."""
    found, above = [], folder
    while above != "/":
        above, name = os.path.split(above)
        try:
            found += [os.path.join(above, each) for each in os.listdir(above) if each != name]  # noqa: PTH118, PTH208
        except PermissionError:  # nothing beside it can be named, so nothing there can be changed
            continue
    return found


def _allow(ruleset: int, path: str, accesses: int) -> None:
    """Allow changes at and below a path; what a link leads to counts where it is itself."""
    try:
        opened = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # gone, or closed to us anyway
        return
    try:
        mode = os.fstat(opened).st_mode
        if stat.S_ISLNK(mode):
            return
        if not stat.S_ISDIR(mode):
            accesses &= WRITE_FILE | TRUNCATE
        packed = accesses.to_bytes(8, sys.byteorder) + opened.to_bytes(4, sys.byteorder)
        kind = ctypes.c_int(BENEATH)
        _called(ADD_RULE, ctypes.c_int(ruleset), kind, packed, ctypes.c_uint32(0))
    finally:
        os.close(opened)


def _called(call: int, *given: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(call), *given))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


_libc = ctypes.CDLL(None, use_errno=True)

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
