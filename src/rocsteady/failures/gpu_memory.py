"""Which kind of running out of device memory it was, by the numbers in PyTorch's own message.

All three say "out of memory": the device is full, what PyTorch holds is in pieces, or most of the
device is free and the driver refused all the same.
"""

from __future__ import annotations

import re

FULL, IN_PIECES, WHILE_FREE = "oom-device", "oom-fragmentation", "oom-while-free"
SHARE_FREE = 0.25  # of the device, from which on it is not full
SHARE_HELD = 0.10  # of the device, held by PyTorch and not in use, from which on it is in pieces

_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = r"(\d[\d.]*) (bytes|B|KiB|MiB|GiB|TiB)"
_ASKED = re.compile(rf"Tried to allocate {_SIZE}")
_CAPACITY = re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free")
_HELD = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED = re.compile(rf"{_SIZE} (?:reserved in total by PyTorch|cached)")
_ALLOCATED = re.compile(rf"{_SIZE} already allocated")


def kind_of_oom(message: str) -> str:
    """Return the kind; a message without numbers says no more than that memory was out."""
    asked, capacity, free = (_size(it, message) for it in (_ASKED, _CAPACITY, _FREE))
    if asked is None or not capacity:
        return FULL
    free = free or 0
    if free > asked and free >= SHARE_FREE * capacity:
        return WHILE_FREE
    held = _size(_HELD, message)
    if held is None:
        reserved, allocated = _size(_RESERVED, message), _size(_ALLOCATED, message)
        held = reserved - allocated if reserved is not None and allocated is not None else 0
    return IN_PIECES if held + free >= asked and held >= SHARE_HELD * capacity else FULL


def _size(pattern: re.Pattern[str], message: str) -> float | None:
    found = pattern.search(message)
    if not found:
        return None
    number, unit = (group for group in found.groups() if group)
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        return None
