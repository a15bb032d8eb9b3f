"""Write a file so that it is either whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PRIVATE = 0o600


def write_whole(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write beside ``path``, flush to disk, then rename over it."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode != PRIVATE:
            unfinished.chmod(mode)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
