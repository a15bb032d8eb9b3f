"""Which checkpoint the script itself read before its first step: that it goes on from there.

A file counts if it has the state of an optimizer: weights alone may be any model.
"""

from __future__ import annotations

import json
import os
from typing import Any

from .. import wire
from . import page
from .heart import Heart


def around(heart: Heart, original: Any) -> Any:
    """Return ``torch.load`` that leaves a note of a checkpoint that it read."""

    def load(*args: Any, **kwargs: Any) -> Any:  # whatever torch has
        loaded = original(*args, **kwargs)
        try:
            source = args[0] if args else kwargs.get("f")
            if not heart.steps and not heart.is_strange() and _has_optimizer(loaded):
                _leave(source)
        except Exception as error:  # ours, and not the script's business
            page.note("the checkpoint that was read", error)
        return loaded

    return load


def _has_optimizer(loaded: object) -> bool:
    if not isinstance(loaded, dict):
        return False
    names = [name.lower() for name in loaded if isinstance(name, str)]
    return any("optim" in name for name in names) or {"state", "param_groups"} <= set(names)


def _leave(source: object) -> None:
    path = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    if isinstance(path, (str, os.PathLike)):
        whole = os.path.realpath(path)
        told = {
            "version": wire.READ_VERSION,
            "path": whole,
            "written": os.stat(whole).st_mtime_ns,
        }
        page.leave(wire.READ_SUFFIX, json.dumps(told).encode())
