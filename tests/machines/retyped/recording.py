"""A recording under construction, entry by entry; `document` refuses one that is not consistent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Json: TypeAlias = bool | int | str | list["Json"] | dict[str, "Json"] | None
Entry: TypeAlias = str | dict[str, Json]

VERSION = 1
FOLDER_ENTRIES = frozenset({"names", "disk"})  # entries that may have others below them


class InconsistentError(Exception):
    """The tables say two things that cannot both be true of one machine."""


@dataclass
class Recording:
    """One machine. Paths are absolute, with forward slashes, and lead through no link."""

    name: str
    note: str
    platform: str = "linux"
    folder: str = "/home/user/work"
    uid: int | None = 1000  # None: a system without user numbers
    groups: dict[int, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, Entry] = field(default_factory=dict)

    def text(self, path: str, *lines: str) -> None:
        """Add a file of these lines."""
        self._add(path, "".join(f"{line}\n" for line in lines))

    def texts(self, folder: str, values: Mapping[str, str]) -> None:
        """Add files of one line each, as sysfs has them."""
        for name, value in values.items():
            self.text(f"{folder}/{name}", value)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(path, {"link": target})

    def refused(self, *paths: str) -> None:
        """Add files that the kernel does not let this process read."""
        for path in paths:
            self._add(path, {"errno": "EPERM"})

    def names(self, path: str, names: Iterable[str]) -> None:
        """Add a folder of which only these names were recorded."""
        self._add(path, {"names": list[Json](sorted(names))})

    def device(self, path: str, *, gid: int, mode: str = "0660", access: str = "rw") -> None:
        """Add a device node, and what the user may do with it."""
        self._add(path, {"device": {"mode": mode, "uid": 0, "gid": gid, "access": access}})

    def disk(self, path: str, *, total: int, free: int, filesystem: str) -> None:
        """Add a folder with the file system that it lies on."""
        entry: dict[str, Json] = {"total": total, "free": free, "writable": True}
        self._add(path, {"disk": {**entry, "filesystem": filesystem}})

    def document(self) -> dict[str, Json]:
        """Return the recording as it is written."""
        self._check()
        groups: dict[str, Json] = {str(gid): name for gid, name in self.groups.items()}
        return {
            "version": VERSION,
            "note": self.note,
            "platform": self.platform,
            "folder": self.folder,
            "python": None,
            "user": None if self.uid is None else {"uid": self.uid, "groups": groups},
            "environment": dict[str, Json](self.environment),
            "files": dict[str, Json](self.files),
        }

    def _add(self, path: str, entry: Entry) -> None:
        if path in self.files:
            raise InconsistentError(f"{self.name}: {path} is given twice")
        self.files[path] = entry

    def _check(self) -> None:
        for path in self.files:
            head, *parts = path.split("/")
            if head not in ("", "C:") or any(part in ("", ".", "..") for part in parts):
                raise InconsistentError(f"{self.name}: {path!r} is not a plain absolute path")
            for end in range(1, len(parts)):
                above = "/".join([head, *parts[:end]])
                found = self.files.get(above, {})
                if isinstance(found, str) or not FOLDER_ENTRIES.issuperset(found):
                    raise InconsistentError(f"{self.name}: {above} is no folder, above {path}")
