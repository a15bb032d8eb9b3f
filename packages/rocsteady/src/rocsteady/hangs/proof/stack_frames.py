"""Reading one stack: whose code it is, which line a person should look at, what is known of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from rocsteady.doctor.knowledge.waits import WaitKnowledge
from rocsteady.hangs.frames import is_users_file, path_of, place_of_frame
from rocsteady.hangs.values import ThreadSeen

UNRESOLVED = "?"  # what py-spy calls the file of a native frame that it could not make out
PYTHONS = re.compile(r"(?:^|/)python\d[.\d]*/(?!(?:site|dist)-packages/)|^<frozen ")
TORCHS = re.compile(r"(?:site|dist)-packages/torch/")


def is_of(frame: str, *files: str) -> bool:
    """Whether a frame is in one of these files, given by the end of their path."""
    path = path_of(frame)
    return any(path == file or path.endswith(f"/{file}") for file in files)


def is_torchs(frames: Sequence[str] | None) -> bool:
    """Whether a thread is in PyTorch's own code, or in what that calls of Python's."""
    paths = (path_of(frame) for frame in frames or ())
    outermost = next((path for path in paths if not PYTHONS.search(path)), "")
    return bool(TORCHS.search(outermost))


def own_part(frames: Sequence[str] | None) -> Sequence[str]:
    """Leave out what a process that multiprocessing forked has from its parent's stack."""
    frames = frames or ()
    forked = (
        number
        for number, frame in enumerate(frames)
        if "_launch" in frame and is_of(frame, "multiprocessing/popen_fork.py")
    )
    return frames[: next(forked, len(frames))]


def has_users_code(frames: Sequence[str] | None) -> bool:
    """Whether a thread is in code of the user's own, or in what that calls."""
    return any(is_users_file(path_of(frame)) for frame in own_part(frames))


def below_users_code(frames: Sequence[str] | None) -> Sequence[str]:
    """Return the innermost frames, down from what the user's code has called."""
    frames = frames or ()
    users = (number for number, frame in enumerate(frames) if has_users_code((frame,)))
    return frames[: next(users, len(frames))]


def queue_of(frames: Sequence[str] | None) -> str:
    """Return which queue a thread waits for, in Python's own code; "" if it is in none."""
    stays = {"get": " that stays empty", "put": " that stays full"}
    for frame in below_users_code(frames):
        if is_of(frame, "queue.py", "multiprocessing/queues.py"):
            return f"a queue{stays.get(frame.partition(' ')[0].rpartition('.')[2], '')}"
    return ""


def in_collective(thread: ThreadSeen, known: WaitKnowledge) -> bool:
    """Whether a thread is in a call that other ranks must make too."""
    return known.collective(below_users_code(thread.frames), thread.native or ())


def in_python_lock(thread: ThreadSeen) -> bool:
    """Whether a thread waits in Python's own locks, which no native code holds."""
    return bool(thread.frames) and is_of((thread.frames or ("",))[0], "threading.py", "queue.py")


def place_of(frames: Sequence[str] | None) -> str:
    """Name the innermost frame of the user's own code: "data.py:88 load".

    Without one, as in a trainer's own command, the innermost that is not Python's.
    """
    if not frames:
        return ""
    named = [frame for frame in frames if path_of(frame) != UNRESOLVED] or frames
    own = (frame for frame in own_part(named) if is_users_file(path_of(frame)))
    library = (frame for frame in named if not PYTHONS.search(path_of(frame)))
    return place_of_frame(next(chain(own, library), named[0]))
