"""A drive behind a server, as NFS or sshfs have it: FUSE, by the kernel's own protocol.

    python network_drive.py FOLDER MOUNT-POINT

mounts FOLDER at MOUNT-POINT. While FOLDER has a file ``.errno``, each open, read and write is
answered with the error number in it (stale handle; quota exceeded, for writes only). It ends when
it is unmounted; if it is killed, the mount is not connected.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import sys
from pathlib import Path

LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK, RMDIR, RENAME = 1, 2, 3, 4, 9, 10, 11, 12
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT = 14, 15, 16, 17, 18, 20, 25, 26
OPENDIR, READDIR, RELEASEDIR, CREATE, BATCH_FORGET, RENAME2 = 27, 28, 29, 35, 42, 45
SILENT = (FORGET, BATCH_FORGET)
DENIED = (OPEN, READ, WRITE, CREATE)
SIZE_IS_SET = 1 << 3


class Drive:
    def __init__(self, folder: Path, mounted: Path) -> None:
        self.folder = folder
        self.paths: dict[int, Path] = {1: folder}
        self.numbers: dict[Path, int] = {folder: 1}
        self.device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"drive", bytes(mounted), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), "mount")

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self.device, 1 << 21)
            except OSError as gone:
                if gone.errno == errno.ENODEV:  # unmounted
                    return
                continue
            _, operation, unique, node = struct.unpack_from("<IIQQ", request)
            if operation in SILENT:
                continue
            code, answer = 0, b""
            try:
                self._fail(operation)
                answer = self._answer(operation, node, request[40:])
            except OSError as error:
                code = -(error.errno or errno.EIO)
            with contextlib.suppress(OSError):  # interrupted meanwhile
                os.write(self.device, struct.pack("<IiQ", 16 + len(answer), code, unique) + answer)

    def _fail(self, operation: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            if operation in DENIED:
                number = int((self.folder / ".errno").read_text())
                if number != errno.EDQUOT or operation == WRITE:
                    raise OSError(number, os.strerror(number))

    def _answer(self, operation: int, node: int, data: bytes) -> bytes:  # noqa: C901, PLR0911, PLR0912 - one a call
        if operation == INIT:
            return struct.pack(
                "<IIIIHHIIHHI7I", 7, 31, 1 << 17, 0, 16, 12, 1 << 20, 1, 0, 0, 0, *[0] * 7
            )
        path = self.paths[node]
        if operation == LOOKUP:
            return self._entry(path / _name(data))
        if operation == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self._attributes(path)
        if operation == SETATTR:
            valid, _, _, size = struct.unpack_from("<IIQQ", data)
            if valid & SIZE_IS_SET:
                os.truncate(path, size)
            return struct.pack("<QII", 0, 0, 0) + self._attributes(path)
        if operation == MKDIR:
            made = path / _name(data[8:])
            made.mkdir()
            return self._entry(made)
        if operation == UNLINK:
            (path / _name(data)).unlink()
        elif operation == RMDIR:
            (path / _name(data)).rmdir()
        elif operation in (RENAME, RENAME2):
            old, new = data[8 if operation == RENAME else 16 :].split(b"\0")[:2]
            target = self.paths[struct.unpack_from("<Q", data)[0]] / os.fsdecode(new)
            (path / os.fsdecode(old)).rename(target)
            number = self.numbers.pop(path / os.fsdecode(old), None)
            if number is not None:
                self.paths[number], self.numbers[target] = target, number
        elif operation in (OPEN, OPENDIR):
            path.stat()
            return struct.pack("<QII", 0, 0, 0)
        elif operation == CREATE:
            made = path / _name(data[16:])
            made.touch()
            return self._entry(made) + struct.pack("<QII", 0, 0, 0)
        elif operation == READ:
            _, offset, size = struct.unpack_from("<QQI", data)
            with path.open("rb") as file:
                return os.pread(file.fileno(), size, offset)
        elif operation == WRITE:
            _, offset, size = struct.unpack_from("<QQI", data)
            with path.open("r+b") as file:
                return struct.pack("<II", os.pwrite(file.fileno(), data[40 : 40 + size], offset), 0)
        elif operation == READDIR:
            return self._listing(path, *struct.unpack_from("<QQI", data)[1:])
        elif operation == STATFS:
            disk = os.statvfs(self.folder)
            blocks = (disk.f_blocks, disk.f_bfree, disk.f_bavail, disk.f_files, disk.f_ffree)
            return struct.pack("<5Q4I6I", *blocks, disk.f_bsize, 255, disk.f_frsize, 0, *[0] * 6)
        elif operation not in (RELEASE, FSYNC, FLUSH, RELEASEDIR):
            raise OSError(errno.ENOSYS, "not offered")
        return b""

    def _listing(self, path: Path, offset: int, size: int) -> bytes:
        listing = b""
        for number, name in enumerate(
            sorted(each.name for each in path.iterdir())[offset:], offset + 1
        ):
            text = os.fsencode(name)
            entry = struct.pack("<QQII", number, number, len(text), 0) + text
            entry += b"\0" * (-len(entry) % 8)
            if len(listing) + len(entry) > size:
                break
            listing += entry
        return listing

    def _entry(self, path: Path) -> bytes:
        attributes = self._attributes(path)
        number = self.numbers.setdefault(path, len(self.paths) + 1)
        self.paths[number] = path
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + attributes

    def _attributes(self, path: Path) -> bytes:
        seen = path.lstat()
        times = (int(seen.st_atime), int(seen.st_mtime), int(seen.st_ctime))
        whole = struct.pack("<6Q", seen.st_ino, seen.st_size, seen.st_blocks, *times)
        return whole + struct.pack("<10I", 0, 0, 0, seen.st_mode, seen.st_nlink, 0, 0, 0, 4096, 0)


def _name(data: bytes) -> str:
    return os.fsdecode(data.split(b"\0")[0])


if __name__ == "__main__":
    drive = Drive(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    drive.serve()
