"""Who writes: which machine, which boot of it, which process.

A process number alone says little: numbers are used again, each container counts for itself, and a
journal on a shared home is read by other machines. So a process is its number, its moment of birth
and the space that number is from.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path

from rocsteady.model import Value
from rocsteady.system.disk_root import DiskRoot
from rocsteady.system.procfs import parse_stat
from rocsteady.system.root import Root

BOOT_ID = "/proc/sys/kernel/random/boot_id"
KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"
PYTHON = re.compile(r"python[\d.]*(\.exe)?|pypy[\d.]*")


class Identity(Value, frozen=True, kw_only=True):
    """One process on one boot of one machine. What cannot be known is ""."""

    machine: str
    boot_id: str
    process: str  # "space:number:birth"


def this_process() -> Identity:
    root = DiskRoot()
    return Identity(
        machine=machine_fingerprint(root),
        boot_id=_text(root, BOOT_ID),
        process=f"{_number_space()}:{os.getpid()}:{_birth(root, os.getpid())}",
    )


def machine_fingerprint(root: Root | None = None) -> str:
    """Hash what identifies a machine, GPU serials first; nothing can be read back from it.

    A container may have any /etc/machine-id, or a new one each time, so that comes second.
    """
    root = root or DiskRoot()
    serials = sorted(_serials(root))
    processor = re.search(r"^model name\s*:\s*(.*)$", _text(root, "/proc/cpuinfo"), re.MULTILINE)
    memory = _text(root, "/proc/meminfo").partition("\n")[0]
    known = serials or [_text(root, "/etc/machine-id") or memory]
    return fingerprint(processor.group(1) if processor else "", *known)


def script_fingerprint(command: tuple[str, ...], folder: str) -> str:
    """Hash a command with its arguments: other arguments make other step times."""
    return fingerprint(folder, *command)


def fingerprint(*words: str) -> str:
    """Return a short name for some words."""
    digest = hashlib.sha256()
    for word in words:
        content = word.encode("utf-8", "surrogateescape")
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()[:32]


def is_alive(process: str, root: Root | None = None) -> bool | None:
    """Return whether a process of this boot still lives; None if that cannot be known from here."""
    space, _, rest = process.partition(":")
    number, _, birth = rest.partition(":")
    if not (space and birth and number.isdecimal()) or space != _number_space():
        return None
    root = root or DiskRoot()
    if not _birth(root, os.getpid()):  # a recording, say: no process of this machine is in it
        return None
    return _birth(root, int(number)) == birth


def is_supervisor(number: int, journal: Path) -> bool:
    """Return whether a process is rocsteady, by its program, and has a journal open."""
    interpreter, *words = _text(DiskRoot(), f"/proc/{number}/cmdline").split("\0")
    program = next((word for word in words if not word.startswith("-")), "")
    if not PYTHON.fullmatch(Path(interpreter).name):
        program = interpreter
    return Path(program).name in ("rocsteady", "rocsteady.exe") and _has_open(number, journal)


def _has_open(number: int, path: Path) -> bool:
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{number}/fd").iterdir():
            with contextlib.suppress(OSError):
                if descriptor.samefile(path):
                    return True
    return False


def _birth(root: Root, number: int) -> str:
    """Return when a process was born, in ticks since boot; "" if it is dead or cannot be seen."""
    try:
        found = parse_stat(_text(root, f"/proc/{number}/stat").encode())
    except (IndexError, ValueError):
        return ""
    return "" if found.state in "ZX" else str(found.start)


def _number_space() -> str:
    try:
        return re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
    except (OSError, ValueError):
        return ""


def _serials(root: Root) -> set[str]:
    try:
        nodes = root.names(KFD_NODES)
    except OSError:
        return set()
    properties = (_text(root, f"{KFD_NODES}/{node}/properties") for node in nodes)
    found = (re.search(r"^unique_id (\d+)", text, re.MULTILINE) for text in properties)
    return {match.group(1) for match in found if match} - {"0"}


def _text(root: Root, path: str) -> str:
    try:
        return root.text(path).strip()
    except OSError:
        return ""
