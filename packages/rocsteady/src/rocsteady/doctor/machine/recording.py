r"""One file that holds what was read of a machine, so that it can be looked at elsewhere.

The format is version 1 of a JSON object::

    {"version": 1, "note": "...", "platform": "linux", "folder": "/home/user/work",
     "python": null, "user": {"uid": 1000, "groups": {"109": "render"}},
     "environment": {"HSA_XNACK": "1"},
     "files": {"/sys/.../gpu_id": "4711\n",
               "/opt/rocm": {"link": "/opt/rocm-6.2.0"},
               "/sys/.../3/gpu_id": {"errno": "EPERM"},
               "/opt": {"names": ["rocm", "rocm-6.2.0"]},
               "/dev/kfd": {"device": {"mode": "0660", "uid": 0, "gid": 109, "access": "rw"}},
               "/dev/shm": {"disk": {"total": 1, "free": 1, "filesystem": "tmpfs",
                                     "writable": true}},
               "/.../libtorch_hip.so": {"pieces": {"0": "base64"}},
               "/.../shims/python": {"answer": "what it said of itself"}}}

A recording may come from anyone. It is data: nothing in it is run, opened or followed outside it.
"""

from __future__ import annotations

import base64
import binascii
import errno
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.doctor.machine.python_env import PYTHON_FOLDER
from rocsteady.doctor.machine.rocm import ROCM_FOLDER, ROCM_LIBRARY
from rocsteady.doctor.machine.system import read_variables, relevant_words
from rocsteady.doctor.machine.torch_build import PACKAGES
from rocsteady.doctor.machine.view import Question, View
from rocsteady.errors import RecordingError
from rocsteady.model import Value
from rocsteady.store.redaction import Redactor
from rocsteady.system.root import (
    PATH_LIMIT,
    TEXT_LIMIT,
    Device,
    Disk,
    Root,
    User,
    is_absolute,
    parent,
    resolve_inside,
)
from rocsteady.typed_values import decode

VERSION = 1
RECORDING_LIMIT = 32 * 1024 * 1024  # bytes of one recording
MAX_PATHS, DEEPEST_PATH = 10_000, 48  # real ones hold a few thousand, twenty folders deep
MAX_NAMES = 50_000  # in one folder; a library of kernels may hold thousands
VARIABLE_LIMIT = 128 * 1024  # characters; what Linux allows
_CODES = {name: code for code, name in errno.errorcode.items()}


class RecordedPath(
    Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What was found at one path, other than plain text."""

    link: str | None = None
    errno: str | None = None
    names: tuple[str, ...] | None = None
    device: Device | None = None
    disk: Disk | None = None
    pieces: dict[str, str] | None = None  # offset to base64
    answer: str | None = None


class Recording(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    note: str
    platform: str
    folder: str
    files: dict[str, str | RecordedPath]
    environment: dict[str, str]
    user: User | None = None
    python: str | None = None
    own_prefix: str = ""  # of rocsteady, where that was on the same machine


class _OfAnyVersion(Value, frozen=True, kw_only=True):
    version: int


def read_recording(path: Path) -> Recording:
    """Read and check one file; whatever is wrong with it is one sentence."""
    try:
        content = read_regular(path, RECORDING_LIMIT)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from None
    return decode_recording(content, str(path))


def decode_recording(content: bytes, name: str) -> Recording:
    """Decode a recording; ``name`` is what an error calls it."""
    try:
        version = decode(content, type=_OfAnyVersion).version
        if version != VERSION:
            raise RecordingError(f"{name}: version {version}; this rocsteady reads {VERSION}")
        recording = decode(content, type=Recording)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RecordingError(f"{name}: not a recording: {error}") from None
    if len(recording.files) > MAX_PATHS:
        raise RecordingError(f"{name}: more than {MAX_PATHS} paths")
    for path, entry in recording.files.items():
        if not may_hold(path):
            raise RecordingError(f"{name}: {path[:80]!r} is not a path inside a machine")
        if isinstance(entry, str) and len(entry) > TEXT_LIMIT:
            raise RecordingError(f"{name}: {path!r} is longer than {TEXT_LIMIT} characters")
        if isinstance(entry, RecordedPath) and len(entry.names or ()) > MAX_NAMES:
            raise RecordingError(f"{name}: {path!r} has more than {MAX_NAMES} names")
    for variable, value in recording.environment.items():
        if len(variable) + len(value) > VARIABLE_LIMIT:
            raise RecordingError(f"{name}: {variable[:80]!r} is longer than Linux allows")
    return recording


def may_hold(path: str) -> bool:
    """Whether a path is absolute, inside the recording, and not absurd."""
    parts = path.split("/")
    inside = is_absolute(path) and ".." not in parts
    return inside and len(parts) <= DEEPEST_PATH and len(path) <= PATH_LIMIT


class RecordedRoot:
    def __init__(self, recording: Recording, *, python: str | None = None) -> None:
        self._files: Mapping[str, str | RecordedPath] = recording.files
        self._children = _children(recording.files)
        self._folders: dict[str, str] = {}  # without links; a thousand machines are asked at once
        self.platform = recording.platform
        self.folder = recording.folder
        self.python = python or recording.python
        self.environment: Mapping[str, str] | None = recording.environment
        self.user = recording.user
        self.own_prefix = recording.own_prefix

    def text(self, path: str) -> str:
        found = self._find(path)
        if isinstance(found, str):
            return found
        raise _missing(path)

    def piece(self, path: str, offset: int, size: int) -> bytes:
        found = self._find(path)
        if isinstance(found, str):
            return found.encode()[offset : offset + size]
        if found.pieces is None or str(offset) not in found.pieces:
            raise _missing(path)
        try:
            return base64.b64decode(found.pieces[str(offset)], validate=True)[:size]
        except (binascii.Error, ValueError):
            raise OSError(errno.EIO, "damaged in the recording", path) from None

    def names(self, path: str) -> tuple[str, ...]:
        found = self._find(path)
        if isinstance(found, str):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        listed = found.names or ()
        return tuple(sorted({*listed, *self._children.get(self.resolve(path), ())}))

    def is_folder(self, path: str) -> bool:
        found = self._there(path)
        if isinstance(found, str) or (found.errno is not None and found.names is None):
            return False
        return found.device is None and found.pieces is None

    def resolve(self, path: str) -> str:
        """Follow recorded links, never out of the recording."""
        folder, _, name = path.rpartition("/")
        odd = name in ("", ".", "..") or path[1:2] == ":" or len(path) > PATH_LIMIT
        if odd or path.count("/") > DEEPEST_PATH:
            return resolve_inside(path, self._readlink)
        if folder not in self._folders:
            try:
                self._folders[folder] = self.resolve(folder).rstrip("/") if folder else ""
            except OSError:
                return resolve_inside(path, self._readlink)  # its error names the whole path
        here = f"{self._folders[folder]}/{name}"
        return here if self._readlink(here) is None else resolve_inside(path, self._readlink)

    def device(self, path: str) -> Device:
        found = self._find(path)
        if isinstance(found, str) or found.device is None:
            raise OSError(errno.ENODEV, "not a device", path)
        return found.device

    def disk(self, path: str) -> Disk:
        found = self._find(path)
        if isinstance(found, str) or found.disk is None:
            raise _missing(path)
        return found.disk

    def answer(self, path: str) -> str:
        found = self._find(path)
        if isinstance(found, str) or found.answer is None:
            raise OSError(errno.ENOTSUP, "not asked when it was recorded", path)
        return found.answer

    def _find(self, path: str) -> str | RecordedPath:
        found = self._there(path)
        if isinstance(found, RecordedPath) and found.errno is not None:
            code = _CODES.get(found.errno, errno.EIO)
            raise OSError(code, os.strerror(code), path)
        return found

    def _there(self, path: str) -> str | RecordedPath:
        real = self.resolve(path)
        found = self._files.get(real)
        if found is None:
            above = self._files.get(parent(real))
            listed = above.names or () if isinstance(above, RecordedPath) else ()
            if real in self._children or real.rpartition("/")[2] in listed:
                return RecordedPath()
            raise _missing(path)
        return found

    def _readlink(self, path: str) -> str | None:
        found = self._files.get(path)
        return found.link if isinstance(found, RecordedPath) else None


def _children(files: Mapping[str, object]) -> dict[str, set[str]]:
    """Return the folders that the recorded paths imply, with what they hold."""
    children: dict[str, set[str]] = {}
    for path in files:
        while True:
            folder, _, name = path.rpartition("/")
            siblings = children.setdefault(folder or "/", set())
            if not name or name in siblings:
                break
            siblings.add(name)
            if not folder:
                break
            path = folder  # noqa: PLW2901 - climbs to the root
    return children


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


# Turns what a view saw into a recording that may leave the machine. Everything goes through the
# redactor, keys and link targets too, so that a replay still fits together. Of long listings
# only the names that tell something about ROCm are kept.
# Where things are, which a replay needs to find its way.
WAYS = (
    "HOME", "USERPROFILE", "PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONUSERBASE",
    "PYTHONNOUSERSITE", "LD_LIBRARY_PATH", "container", "KUBERNETES_SERVICE_HOST",
)  # fmt: skip
_SERIAL_LINE = re.compile(r"^(unique_id|hive_id) (\d+)$", re.MULTILINE)
_TELLING = (PACKAGES, ROCM_FOLDER, ROCM_LIBRARY, PYTHON_FOLDER)


def record(view: View, redactor: Redactor, known: Collection[str], note: str) -> Recording:
    files: dict[str, str | RecordedPath] = {}
    for question, answer in view.answers.items():
        path = question[1]
        if not path.isprintable():
            continue
        # What did not answer once is not asked again, not even where it leads.
        hangs = isinstance(answer, TimeoutError)
        real = path if hangs else _link_entries(view.root, path, files, redactor)
        # Keys of the registry are the same on every machine, though they look like serials.
        key = real if real.startswith("/HKLM/") else redactor.text(real)
        found = _entry(question, answer, redactor)
        if found is not None and may_hold(key):
            files[key] = _merged(files.get(key), found)
    user = view.user
    return Recording(
        version=VERSION,
        note=note,
        platform=view.platform,
        folder=redactor.text(view.root.folder),
        files=dict(sorted(files.items())),
        environment=_environment(view, redactor, known),
        user=_user(user, redactor) if user else None,
        own_prefix=redactor.text(view.root.own_prefix),
        python=redactor.text(view.root.python) if view.root.python else None,
    )


def _user(user: User, redactor: Redactor) -> User:
    """Keep what a person may do; the group that bears their name gets another."""
    groups = {gid: redactor.text(name) for gid, name in user.groups.items()}
    return User(uid=user.uid and 1000, groups=groups)


def _entry(question: Question, answer: object, redactor: Redactor) -> str | RecordedPath | None:
    """Spell one answer; None for what need not be recorded."""
    operation, path, arguments = question
    if isinstance(answer, OSError):
        absent = isinstance(answer, FileNotFoundError | NotADirectoryError)
        telling = operation in ("text", "names", "piece") and not absent
        code = errno.errorcode.get(answer.errno or 0, "EIO")
        return RecordedPath(errno=code) if telling else None
    if operation == "is_folder":
        return RecordedPath(names=()) if answer else ""
    if isinstance(answer, bytes):
        return RecordedPath(pieces={str(arguments[0]): base64.b64encode(answer).decode()})
    if isinstance(answer, tuple):
        return RecordedPath(names=tuple(name for name in answer if _tells(path, name)))
    if isinstance(answer, Device | Disk):
        return (
            RecordedPath(device=answer) if isinstance(answer, Device) else RecordedPath(disk=answer)
        )
    return _spoken(operation, path, str(answer), redactor)


def _spoken(operation: str, path: str, text: str, redactor: Redactor) -> str | RecordedPath | None:
    if operation == "resolve":
        return None
    if operation == "answer":
        return RecordedPath(answer=redactor.text(text))
    return _text(path, text, redactor)


def _text(path: str, text: str, redactor: Redactor) -> str:
    if path == "/proc/cmdline":
        return " ".join(relevant_words(text))
    text = _SERIAL_LINE.sub(lambda line: f"{line[1]} {redactor.serial(line[2])}", text)
    return redactor.text(text)[:TEXT_LIMIT]  # a stand-in may be longer than what it stands for


def _tells(folder: str, name: str) -> bool:
    if folder.startswith(("/sys/", "/dev/", "/HKLM/")) or "/torch/" in folder:
        return True
    return any(pattern.match(name) for pattern in _TELLING)


def _link_entries(
    root: Root, path: str, files: dict[str, str | RecordedPath], redactor: Redactor
) -> str:
    """Record the links on the way to ``path``; return where it leads."""
    if path == "/" or path.endswith(":"):  # of Linux, of a Windows drive
        return path
    try:
        above = _link_entries(root, parent(path), files, redactor)
        real = root.resolve(path)
    except OSError:
        return path
    here = f"{above.rstrip('/')}/{path.rpartition('/')[2]}"
    if real != here:
        files[redactor.text(here)] = RecordedPath(link=redactor.text(real))
    return real


def _merged(before: str | RecordedPath | None, found: str | RecordedPath) -> str | RecordedPath:
    """Put what several questions found at one path together; more telling beats less."""
    if before is None or before == "":
        return found
    if isinstance(before, str) or isinstance(found, str):
        return found if isinstance(found, str) and found else before
    pieces = {**(before.pieces or {}), **(found.pieces or {})}
    return RecordedPath(
        link=before.link or found.link,
        errno=None if pieces else before.errno or found.errno,
        names=before.names if found.names is None else found.names or before.names or (),
        device=before.device or found.device,
        disk=before.disk or found.disk,
        pieces=pieces or None,
        answer=before.answer or found.answer,
    )


def _environment(view: View, redactor: Redactor, known: Collection[str]) -> dict[str, str]:
    environment = view.environment or {}
    ways = {
        name: str(redactor.pair(name, environment[name])) for name in WAYS if name in environment
    }
    telling = {
        variable.name: str(redactor.pair(variable.name, variable.value or ""))
        for variable in read_variables(environment, known)
    }
    return dict(sorted({**telling, **ways}.items()))
