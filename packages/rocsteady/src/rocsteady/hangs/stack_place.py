"""Which line of a stack a person should look at."""

from __future__ import annotations

import re
from collections.abc import Sequence

FRAME = re.compile(r"(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)")
# Looks keep the last folder of a path only, so torch's and Python's own files are known by that;
# where a whole path is given, by the folders that packages are installed in.
NOT_THE_USERS = re.compile(
    r"site-packages/|dist-packages/|/lib(?:64)?/python\d|/Lib/|^<|_rocsteady_inside/"
    r"|^(?:python\d[.\d]*|Lib|multiprocessing|concurrent|futures|asyncio|torch|autograd|_inductor"
    r"|_dynamo)/|^data/dataloader\.py|^distributed/(?:distributed_c10d|c10d_logger|rendezvous)\.py"
    r"|^_utils/(?:worker|fetch|pin_memory|collate)\.py|^utils/_contextlib\.py"
    r"|^modules/(?:module|container|conv|linear)\.py|^nn/functional\.py|^optim/optimizer\.py"
    r"|^(?:threading|selectors|queue)\.py"
)

PYTHONS = re.compile(r"(?:^|/)python\d[.\d]*/(?!(?:site|dist)-packages/)|^<frozen ")
TORCHS = re.compile(r"(?:site|dist)-packages/torch/")


def is_of(frame: str, *files: str) -> bool:
    """Tell whether a frame is in one of these files, given by the end of their path."""
    path = _path(frame)
    return any(path == file or path.endswith(f"/{file}") for file in files)


def is_torchs(frames: Sequence[str] | None) -> bool:
    """Tell whether a thread is in PyTorch's own code, or in what that calls of Python's."""
    paths = (_path(frame) for frame in frames or ())
    outermost = next((path for path in paths if not PYTHONS.search(path)), "")
    return bool(TORCHS.search(outermost))


def has_users_code(frames: Sequence[str] | None) -> bool:
    """Tell whether a thread is in code of the user's own, or in what that calls."""
    return any(not NOT_THE_USERS.search(_path(frame)) for frame in frames or ())


def place_of(frames: Sequence[str] | None) -> str:
    """Name the innermost frame of the user's own code, else the innermost: "data.py:88 load"."""
    if not frames:
        return ""
    own = (frame for frame in frames if not NOT_THE_USERS.search(_path(frame)))
    return _spelled(next(own, frames[0]))


def _path(frame: str) -> str:
    found = FRAME.fullmatch(frame)
    return (found["file"] if found else frame).replace("\\", "/")


def _spelled(frame: str) -> str:
    found = FRAME.fullmatch(frame)
    if not found:
        return frame
    name = _path(frame).rsplit("/", 1)[-1]
    line = f":{found['line']}" if found["line"] else ""
    return f"{name}{line} {found['function']}"
