"""Asks a training for a checkpoint while it may still be able to write one."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import open_regular

from rocsteady.hangs.heartbeat_pages import read_pages

_WORD = struct.Struct("=Q")
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
    with open_regular(page, follow=False, writable=True) as stream:
        if os.fstat(stream.fileno()).st_size == wire.SIZE:
            stream.seek(_AT)
            (asked,) = _WORD.unpack(stream.read(_WORD.size))
            stream.seek(_AT)
            stream.write(_WORD.pack((asked + 1) % (1 << 64)))
