"""Asks a training for a checkpoint while it may still be able to write one."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from rocsteady.evidence.pages import read_pages
from rocsteady.inside import wire

_WORD = struct.Struct("=Q")
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_AT = wire.W_SAVE * _WORD.size


def ask_to_save(pages: Path) -> None:
    """Let the word grow by which a process that trains knows that a save is wanted.

    Before its first step there is nothing to save. Several ranks agree among themselves on when.
    """
    for beat in read_pages(pages):
        if beat.step:
            with contextlib.suppress(OSError):  # it has just ended, say
                _grow(pages / f"{beat.pid}{wire.SUFFIX}")


def _grow(page: Path) -> None:
    descriptor = os.open(page, _FLAGS)
    try:
        if os.fstat(descriptor).st_size == wire.SIZE:
            os.lseek(descriptor, _AT, os.SEEK_SET)
            (asked,) = _WORD.unpack(os.read(descriptor, _WORD.size))
            os.lseek(descriptor, _AT, os.SEEK_SET)
            os.write(descriptor, _WORD.pack(asked + 1))
    finally:
        os.close(descriptor)
