"""Turns what a view saw into a recording that may leave the machine.

Everything goes through the redactor, keys and link targets too, so that a replay still fits
together. Of long listings only the names that tell something about ROCm are kept.
"""

from __future__ import annotations

import base64
import errno
import re
from collections.abc import Collection

from rocsteady.machine.python_env import PYTHON_FOLDER
from rocsteady.machine.recording import VERSION, Entry, Recording, may_hold
from rocsteady.machine.rocm import ROCM_FOLDER, ROCM_LIBRARY
from rocsteady.machine.root import TEXT_LIMIT, Device, Disk, Root, User, parent
from rocsteady.machine.system import relevant_words
from rocsteady.machine.torch_build import PACKAGES
from rocsteady.machine.variables import read_variables
from rocsteady.machine.view import Question, View
from rocsteady.redaction.redactor import Redactor

# Where things are, which a replay needs to find its way.
WAYS = (
    "HOME", "USERPROFILE", "PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONUSERBASE",
    "PYTHONNOUSERSITE", "LD_LIBRARY_PATH", "container", "KUBERNETES_SERVICE_HOST",
)  # fmt: skip
_SERIAL_LINE = re.compile(r"^(unique_id|hive_id) (\d+)$", re.MULTILINE)
_TELLING = (PACKAGES, ROCM_FOLDER, ROCM_LIBRARY, PYTHON_FOLDER)


def record(view: View, redactor: Redactor, known: Collection[str], note: str) -> Recording:
    """Write down what ``view`` saw."""
    files: dict[str, str | Entry] = {}
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


def _entry(question: Question, answer: object, redactor: Redactor) -> str | Entry | None:
    """Spell one answer; None for what need not be recorded."""
    operation, path, arguments = question
    if isinstance(answer, OSError):
        absent = isinstance(answer, FileNotFoundError | NotADirectoryError)
        telling = operation in ("text", "names", "piece") and not absent
        code = errno.errorcode.get(answer.errno or 0, "EIO")
        return Entry(errno=code) if telling else None
    if operation == "is_folder":
        return Entry(names=()) if answer else ""
    if isinstance(answer, bytes):
        return Entry(pieces={str(arguments[0]): base64.b64encode(answer).decode()})
    if isinstance(answer, tuple):
        return Entry(names=tuple(name for name in answer if _tells(path, name)))
    if isinstance(answer, Device | Disk):
        return Entry(device=answer) if isinstance(answer, Device) else Entry(disk=answer)
    return _spoken(operation, path, str(answer), redactor)


def _spoken(operation: str, path: str, text: str, redactor: Redactor) -> str | Entry | None:
    if operation == "resolve":
        return None
    if operation == "answer":
        return Entry(answer=redactor.text(text))
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


def _link_entries(root: Root, path: str, files: dict[str, str | Entry], redactor: Redactor) -> str:
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
        files[redactor.text(here)] = Entry(link=redactor.text(real))
    return real


def _merged(before: str | Entry | None, found: str | Entry) -> str | Entry:
    """Put what several questions found at one path together; more telling beats less."""
    if before is None or before == "":
        return found
    if isinstance(before, str) or isinstance(found, str):
        return found if isinstance(found, str) and found else before
    pieces = {**(before.pieces or {}), **(found.pieces or {})}
    return Entry(
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
