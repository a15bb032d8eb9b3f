"""One thing that could be the failure: what it is, by numbers where words are not enough.

Three kinds of running out of device memory say "out of memory": the device is full, what PyTorch
holds is in pieces, or enough of the device is free and the driver refused all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rocsteady.doctor.knowledge.failures import Signature, Where
from rocsteady.failures.symptoms import Symptoms, signal_name
from rocsteady.model import Certainty, FailureKind, Role

PLENTY_OF_DISK = 1 << 30  # bytes of free disk at which a failed write was not for lack of room
EXIT_CODES = 2**32  # Windows gives codes below this, Python may show them as negative
SHARE_FREE = 0.25  # of the device, from which on it is not full
SPARE_BYTES = 1 << 30  # bytes free beyond what was asked for, from which on it is not full either
SHARE_HELD = 0.10  # of the device, held by PyTorch and not in use, from which on it is in pieces

_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = r"(\d[\d.]*) (bytes|B|KiB|MiB|GiB|TiB)"
_ASKED = re.compile(rf"Tried to allocate {_SIZE}")
_CAPACITY = re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free")
_HELD = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED = re.compile(rf"{_SIZE} (?:reserved in total by PyTorch|cached)")
_ALLOCATED = re.compile(rf"{_SIZE} already allocated")
_OTHER = re.compile(r"Process \d+ has (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB|TiB) memory in use")


class Candidate(NamedTuple):
    """One thing that could be the failure."""

    kind: str
    role: Role
    certainty: Certainty
    at: float  # later is larger
    seen: tuple[str, ...]
    signature: str = ""
    alone: bool = True
    place: str = ""
    rank: int | None = None
    traceback: str = ""
    bare: bool = False  # an exception without its traceback
    by_end: bool = False  # only how the process ended tells of it


def kind_by_numbers(kind: str, text: str, symptoms: Symptoms) -> str:
    """Return the kind that it is by the numbers in its text and of the machine."""
    if kind == FailureKind.OOM_DEVICE:
        capacity = _size(_CAPACITY, text)
        if capacity and max(symptoms.gpu_taken, _of_others(text)) >= SHARE_FREE * capacity:
            return FailureKind.GPU_TAKEN
        return kind_of_oom(text)
    guessed = not re.search(r"(?i)no space|quota|disk is full|os error 28|\[Errno 28\]", text)
    if kind == FailureKind.DISK_FULL and guessed and (symptoms.disk_free or 0) > PLENTY_OF_DISK:
        return FailureKind.STORAGE_UNAVAILABLE
    return kind


def _of_others(text: str) -> float:
    """Return the bytes that the text says other processes hold.

    Without a word of "this process", the number may be its own: in a container, by another name.
    """
    if "this process has" not in text:
        return 0.0
    return max((float(size) * _UNITS[unit] for size, unit in _OTHER.findall(text)), default=0.0)


def place_in(found: re.Match[str]) -> str:
    """Return what a pattern ties the failure to: a kernel, a library, a device."""
    return (found.groupdict().get("place") or "").strip()


class EndRules:
    """Names the ways in which a process ended, by signals and exit codes."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._signatures = [it for it in signatures if it.where is Where.EXIT]

    def name(self, symptoms: Symptoms) -> list[Candidate]:
        """Return what the end means; nothing for an ordinary exit code."""
        number, code = symptoms.ended_by, symptoms.exit_code
        seen = f"exit code {code}" if number is None else f"ended by {signal_name(number)}"
        return [
            Candidate(
                kind=it.failure,
                role=it.role,
                certainty=it.certainty,
                at=float("inf"),
                seen=(seen,),
                by_end=number is not None,
                signature=it.id,
            )
            for it in self._signatures
            if number in it.signals or (code is not None and code % EXIT_CODES in it.codes)
        ]


def kind_of_oom(message: str) -> str:
    """Return the kind; a message without numbers says no more than that memory was out."""
    asked, capacity, free = (_size(it, message) for it in (_ASKED, _CAPACITY, _FREE))
    if asked is None or not capacity:
        return FailureKind.OOM_DEVICE
    free = free or 0
    if free > asked and (free >= SHARE_FREE * capacity or free >= 1.25 * asked + SPARE_BYTES):
        return FailureKind.OOM_WHILE_FREE
    held = _size(_HELD, message)
    if held is None:
        reserved, allocated = _size(_RESERVED, message), _size(_ALLOCATED, message)
        held = reserved - allocated if reserved is not None and allocated is not None else 0
    return (
        FailureKind.OOM_FRAGMENTATION
        if held + free >= asked and held >= SHARE_HELD * capacity
        else FailureKind.OOM_DEVICE
    )


def _size(pattern: re.Pattern[str], message: str) -> float | None:
    found = pattern.search(message)
    if not found:
        return None
    number, unit = (group for group in found.groups() if group)
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        return None
