"""The live machine, or a folder that holds a copy of one.

Only regular files are opened: a device, FIFO or socket could make us wait for ever, or do
something. A folder is never left; the live environment is not mixed into it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from rocsteady_train.untrusted_file import open_regular, read_exactly

from rocsteady.system.bounded_call import AnswerKind, ask
from rocsteady.system.mounted_drives import unescaped
from rocsteady.system.root import (
    HIPINFO,
    TEXT_LIMIT,
    Device,
    Disk,
    User,
    resolve_inside,
    well_formed,
)

MOUNT_POINT = 4  # column of /proc/self/mountinfo
MOUNTS_LIMIT = 1024 * 1024  # bytes; a host with many containers has many long lines
GID = 2  # column of /etc/group
ASK_WITHIN = timedelta(milliseconds=500)
OFFSET_LIMIT = 1 << 62  # bytes; what no file reaches, a damaged header may ask for
SELF_PORTRAIT = (
    "import json, sys; print(json.dumps("
    "[sys.prefix, sys.executable, '%d.%d.%d' % sys.version_info[:3], sys.platform]))"
)


class DiskRoot:
    """Reads below ``base``; without one, this machine as it is."""

    def __init__(self, base: Path | None = None, *, python: str | None = None) -> None:
        self._base = None if base is None else str(base.resolve())
        self.python = None if python is None else well_formed(python)
        self.platform = sys.platform if base is None else "linux"
        self.folder = "/" if base else _working_folder()
        self.own_prefix = "" if base else sys.prefix.replace("\\", "/")

    @property
    def environment(self) -> Mapping[str, str] | None:
        if self._base is not None:
            return None
        return {well_formed(name): well_formed(value) for name, value in os.environ.items()}

    @property
    def user(self) -> User | None:
        """Who runs this. Names come from the file: a lookup could ask a server that is down."""
        if sys.platform != "win32" and self._base is None:
            return _current_user(self)
        return None

    def text(self, path: str) -> str:
        if sys.platform == "win32" and in_registry(path):
            return registry_text(path)
        return self.piece(path, 0, TEXT_LIMIT).decode("utf-8", "replace")

    def piece(self, path: str, offset: int, size: int) -> bytes:
        with open_regular(self._real(path)) as stream:
            if offset:
                stream.seek(min(offset, OFFSET_LIMIT))
            return read_exactly(stream, size)

    def names(self, path: str) -> tuple[str, ...]:
        if sys.platform == "win32" and in_registry(path):
            return registry_names(path)
        return tuple(sorted(map(well_formed, os.listdir(self._real(path)))))

    def is_folder(self, path: str) -> bool:
        return stat.S_ISDIR(os.stat(self._real(path)).st_mode)

    def resolve(self, path: str) -> str:
        """Return the path without links, still written as seen from inside the root."""
        if self._base is None:
            return well_formed(Path(os.path.realpath(path)).as_posix())
        return resolve_inside(path, self._readlink)

    def device(self, path: str) -> Device:
        """Describe a device node; access is that of the real user, also under sudo -u."""
        real = self._real(path)
        facts = os.stat(real)
        if not stat.S_ISCHR(facts.st_mode):
            raise OSError(errno.ENODEV, "not a device", path)
        access = "".join(
            letter for letter, how in (("r", os.R_OK), ("w", os.W_OK)) if os.access(real, how)
        )
        mode = f"{stat.S_IMODE(facts.st_mode):04o}"
        return Device(mode=mode, uid=facts.st_uid, gid=facts.st_gid, access=access)

    def disk(self, path: str) -> Disk:
        real = self._real(path)
        usage = shutil.disk_usage(real)
        return Disk(
            total=usage.total,
            free=usage.free,
            filesystem=self._filesystem(real),
            writable=os.access(real, os.W_OK),
        )

    def answer(self, path: str) -> str:
        """Ask a program, in a child that may hang or crash; only on the live machine."""
        if self._base is not None:
            raise OSError(errno.ENOTSUP, "a copied interpreter is not run", path)
        # In the working folder: which Python a shim starts may depend on a file there.
        is_python = path.rpartition("/")[2] != HIPINFO
        command = [path, "-I", "-S", "-c", SELF_PORTRAIT] if is_python else [path]
        reply = ask(command, within=ASK_WITHIN, folder=self.folder)
        if reply.outcome is not AnswerKind.ANSWERED:
            raise OSError(errno.ETIMEDOUT, f"asked, {reply.outcome.value}", path)
        if is_python and reply.exit_code != 0:  # hipinfo may crash after it told all
            raise OSError(errno.EIO, f"asked, ended with {reply.exit_code}", path)
        return reply.text

    def _real(self, path: str) -> str:
        return path if self._base is None else self._below(resolve_inside(path, self._readlink))

    def _below(self, path: str) -> str:
        return f"{self._base}/{path.lstrip('/')}"

    def _readlink(self, path: str) -> str | None:
        real = self._below(path)
        return os.readlink(real).replace("\\", "/") if os.path.islink(real) else None

    def _filesystem(self, real: str) -> str:
        if self._base is not None or self.platform != "linux":
            return ""
        try:
            mounts = self.piece("/proc/self/mountinfo", 0, MOUNTS_LIMIT)
        except OSError:  # no /proc in a bare chroot
            return ""
        return filesystem_of(os.path.realpath(real), mounts.decode("utf-8", "replace"))


def filesystem_of(path: str, mountinfo: str) -> str:
    """Name the file system of the mount that holds ``path``, from /proc/self/mountinfo."""
    best, found = -1, ""
    for line in mountinfo.split("\n"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if len(fields) <= MOUNT_POINT or not kind:
            continue
        mount = unescaped(fields[MOUNT_POINT]).rstrip("/")
        if (path == mount or path.startswith(f"{mount}/")) and len(mount) >= best:
            best, found = len(mount), kind
    return found


def _working_folder() -> str:
    try:
        return well_formed(Path.cwd().as_posix())
    except OSError:  # it was removed
        return "/"


if sys.platform != "win32":

    def _current_user(root: DiskRoot) -> User:
        try:
            rows = (line.split(":") for line in root.text("/etc/group").splitlines())
            names = {row[GID]: row[0] for row in rows if len(row) > GID}
        except OSError:
            names = {}
        gids = (str(gid) for gid in sorted({os.getgid(), *os.getgroups()}))
        return User(uid=os.getuid(), groups={gid: names.get(gid, gid) for gid in gids})


# The registry as a tree of files: /HKLM/key/subkey/value. Type-checked, never run on Windows.
if sys.platform == "win32":
    import winreg

    def in_registry(path: str) -> bool:
        return path.startswith("/HKLM/")

    def registry_text(path: str) -> str:
        key, _, name = path.removeprefix("/HKLM/").rpartition("/")
        with _open(key) as handle:
            value, kind = winreg.QueryValueEx(handle, name)
        if kind == winreg.REG_BINARY:  # qwMemorySize is stored so by some drivers
            return str(int.from_bytes(value, "little"))
        return str(value)

    def registry_names(path: str) -> tuple[str, ...]:
        found: list[str] = []
        with _open(path.removeprefix("/HKLM/")) as handle:
            while True:
                try:
                    found.append(winreg.EnumKey(handle, len(found)))
                except OSError:
                    return tuple(sorted(found))

    def _open(key: str) -> winreg.HKEYType:
        return winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key.replace("/", "\\"))
