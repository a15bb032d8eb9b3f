"""What a training script tells the supervisor that runs it, if there is one.

The page of the heartbeat is made by ``_rocsteady_inside``, which the supervisor has put into this
process. It may be of another version than this library: words that it does not know do no harm.
Without a supervisor nothing is told, and nothing is different.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocsteady_train.checkpoints.folder import PATTERN
from rocsteady_train.inside import wire

AFTER_ASIDE = tuple(range(len(wire.PHASES)))  # go back to where it was


def total(steps: int) -> None:
    _tell(wire.W_TOTAL, steps)


def began_at(step: int) -> None:
    _tell(wire.W_BASE, step)


def micro_batches(batch: int, size: int) -> None:
    """Report how many samples are in a batch, and in each micro-batch; 0: it cannot be split."""
    _tell(wire.W_BATCH, batch)
    _tell(wire.W_MICRO_BATCH, size)


def save_failed(step: int | None) -> None:
    """Report that the last save failed, and of which step it was; None: it did not."""
    _tell(wire.W_SAVE_FAILED, 0 if step is None else step + 1)


def saved(step: int) -> None:
    """Report that a save succeeded, and up to which step."""
    hooks = _inside("hooks")
    if hooks is not None:
        began = hooks.heart.facts.get(wire.W_BASE, 0)
        hooks.heart.tell(wire.W_SAVED_STEP, max(0, step - began))
        hooks.heart.tell(wire.W_SAVED, time.monotonic_ns())


def resumes(folder: Path, pattern: str = PATTERN) -> None:
    """Report that this script resumes by itself from the checkpoints in a folder."""
    inside = _inside("page")
    if inside is not None:
        content = {
            "version": wire.RESUMES_VERSION,
            "folder": str(folder.absolute()),
            "pattern": pattern,
        }
        with contextlib.suppress(OSError):
            inside.leave(wire.RESUMES_SUFFIX, json.dumps(content).encode())


def save_is_wanted() -> int:
    """Return a number that grows when the supervisor asks for a checkpoint."""
    hooks = _inside("hooks")
    return int(hooks.heart.words[wire.W_SAVE]) if hooks is not None else 0


def resume_from() -> Path | None:
    named = os.environ.get(wire.RESUME_FROM)
    return Path(named) if named else None


def number(variable: str) -> float | None:
    try:
        return float(os.environ[variable])
    except (KeyError, ValueError):
        return None


@contextlib.contextmanager
def saving() -> Iterator[None]:
    hooks = _inside("hooks")
    if hooks is None:
        yield
        return
    before = hooks.heart.begin(wire.CHECKPOINT, AFTER_ASIDE)
    try:
        yield
    finally:
        hooks.heart.end(before)


def _tell(word: int, value: int) -> None:
    hooks = _inside("hooks")
    if hooks is not None:
        hooks.heart.tell(word, value)


def _inside(name: str) -> Any:  # noqa: ANN401 - a module of the supervisor's version
    return sys.modules.get(f"_rocsteady_inside.heartbeat.{name}")
