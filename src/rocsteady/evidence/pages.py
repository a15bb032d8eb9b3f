"""The heartbeat pages that training processes write, as values.

A page is written without a lock while it is read here. What is not a page of this version is passed
over, because a supervisor must never be stopped by what a training process left behind.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from rocsteady.evidence.values import Heartbeat
from rocsteady.inside import wire

NOTE_LIMIT = 500  # characters of a note that are kept
_WORDS = struct.Struct(f"={wire.SIZE // 8}Q")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NANO = 1e-9


def read_pages(folder: Path) -> tuple[Heartbeat, ...]:
    """Return what each process told, in number order; also of processes that have ended."""
    beats = (_read_page(path, pid) for pid, path in _numbered(folder, wire.SUFFIX))
    return tuple(beat for beat in beats if beat is not None)


def read_notes(folder: Path) -> dict[int, str]:
    """Return the reason that each process without a page gave."""
    notes = {}
    for pid, path in _numbered(folder, wire.NOTE_SUFFIX):
        content = _content(path)
        if content:
            line = content.decode("utf-8", "replace").strip().partition("\n")[0]
            notes[pid] = "".join(mark for mark in line if mark.isprintable())[:NOTE_LIMIT]
    return notes


def _numbered(folder: Path, suffix: str) -> list[tuple[int, Path]]:
    """List the files named by a process; a folder that is not there has none."""
    try:
        paths = [path for path in folder.iterdir() if path.suffix == suffix]
    except OSError:
        return []
    return sorted((int(path.stem), path) for path in paths if path.stem.isdecimal())


def _content(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    except OSError:
        return None
    try:
        return os.read(descriptor, wire.SIZE)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _read_page(path: Path, pid: int) -> Heartbeat | None:
    content = _content(path)
    if content is None or len(content) != wire.SIZE:
        return None
    words = _WORDS.unpack(content)
    ours = words[wire.W_MAGIC] == wire.MAGIC and words[wire.W_VERSION] == wire.VERSION
    if not ours or words[wire.W_PID] != pid or words[wire.W_PHASE] >= len(wire.PHASES):
        return None
    return _heartbeat(words)


def _heartbeat(words: tuple[int, ...]) -> Heartbeat:
    return Heartbeat(
        pid=words[wire.W_PID],
        rank=_told(words[wire.W_RANK]),
        world=words[wire.W_WORLD] or None,
        thread=words[wire.W_THREAD] or words[wire.W_PID],
        step=words[wire.W_STEP],
        beats=words[wire.W_BEATS],
        phase=wire.PHASES[words[wire.W_PHASE]],
        since=words[wire.W_SINCE] * _NANO,
        last_step=words[wire.W_LAST_STEP] * _NANO or None,
        ended=words[wire.W_END] != wire.RUNNING,
        raised=words[wire.W_END] == wire.RAISED,
        total=words[wire.W_TOTAL] or None,
        seconds_in=_by_phase(words, wire.W_TIME),
        longest_in=_by_phase(words, wire.W_LONGEST),
        histogram={
            phase: words[start : start + wire.BUCKETS]
            for phase, start in zip(
                wire.PHASES, range(wire.W_HISTOGRAM, len(words), wire.BUCKETS), strict=False
            )
        },
    )


def _told(word: int) -> int | None:
    return word - 1 if word else None


def _by_phase(words: tuple[int, ...], first: int) -> dict[str, float]:
    return {phase: words[first + index] * _NANO for index, phase in enumerate(wire.PHASES)}
