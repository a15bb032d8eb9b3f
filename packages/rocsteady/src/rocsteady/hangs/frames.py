"""Whose code a frame of a stack is, and how a person is told where it is.

One reading for stacks that we take, for stacks that others took, and for tracebacks.
"""

from __future__ import annotations

import re
from functools import lru_cache

FRAMES = 20_000  # of which the answers are kept
FRAME = re.compile(r"(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)")

# A whole path is known by the folder that packages are installed in. Stacks that we take keep of an
# installed file what is below its root, and of any other the last folder: so torch's own files are
# also known by their last folder, for a torch that was built and is used in its source tree.
_INSTALLED = re.compile(
    r"(?:site|dist)-packages/|/lib(?:64)?/python\d|/Lib/|^<(?!stdin>)|_rocsteady_inside/"
    r"|/torch/(?:_|nn|utils|autograd|cuda|optim|distributed|multiprocessing|functional)"
    r"|torchinductor_|(?:^|/)bin/[\w-]+$"
    r"|^(?:python\d[.\d]*|Lib|multiprocessing|concurrent|futures|asyncio|torch|autograd|_inductor"
    r"|_dynamo)/|^data/dataloader\.py|^distributed/(?:distributed_c10d|c10d_logger|rendezvous)\.py"
    r"|^_utils/(?:worker|fetch|pin_memory|collate)\.py|^utils/_contextlib\.py"
    r"|^modules/(?:module|container|conv|linear)\.py|^nn/functional\.py|^optim/optimizer\.py"
    r"|^(?:threading|selectors|queue)\.py"
)
# py-spy, when asked by others, shortens the paths of installed files to the name of the package. A
# folder of the user's own may have such a name too, so this is no rule for stacks that we take.
_SHORTENED = re.compile(
    r"(?:^|/)python\d[.\d]*/"
    r"|^(?:torch\w*|transformers|accelerate|lightning\w*|pytorch_lightning|datasets|deepspeed"
    r"|huggingface_hub|urllib3?|requests|http|numpy|PIL|cv2|importlib)/"
    r"|^(?:socket|ssl|subprocess|runpy|contextlib|functools)\.py$"
)


@lru_cache(FRAMES)
def is_users_file(path: str, *, shortened: bool = False) -> bool:
    """Whether code in this file is the user's own; ``shortened``: the path is py-spy's."""
    path = forward(path)
    return not (_INSTALLED.search(path) or (shortened and _SHORTENED.search(path)))


def place(function: str, path: str, line: str = "") -> str:
    """Write where something is: "data.py:88 load", or "data.py load" without its line."""
    name = forward(path).rpartition("/")[2]
    return f"{name}:{line} {function}" if line else f"{name} {function}".strip()


@lru_cache(FRAMES)
def path_of(frame: str) -> str:
    """Return the file of a frame "function (file:line)"."""
    found = FRAME.fullmatch(frame)
    return forward(found["file"] if found else frame)


def place_of_frame(frame: str) -> str:
    """Write where a frame "function (file:line)" is."""
    found = FRAME.fullmatch(frame)
    return place(found["function"], found["file"], found["line"] or "") if found else frame


def forward(path: str) -> str:
    """Write a path as Linux and knowledge do."""
    return path.replace("\\", "/")
