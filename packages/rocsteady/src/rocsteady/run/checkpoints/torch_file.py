"""What a file that torch.save wrote says of itself, without unpickling it."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from rocsteady_train.untrusted_file import open_regular

# All that zipfile raises for a file that is damaged, encrypted or packed in an unknown way.
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def pickles_in(path: Path, limit: int) -> Iterator[bytes]:
    """Yield the beginning of each pickle in a file, as far as it can be read."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            for name in archive.namelist():
                if name.endswith("data.pkl"):
                    with archive.open(name) as pickled:
                        yield pickled.read(limit)
    except UNREADABLE:
        return
