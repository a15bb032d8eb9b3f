"""The Python line that a process crashed in, as faulthandler wrote it before the process died."""

from __future__ import annotations

import re

from rocsteady.failures.tracebacks import Frame, is_own, unlabelled

HEADS = ("Fatal Python error: ", "Windows fatal exception: ")
LONGEST = 1 << 16  # characters of a dump that are read

_THREAD = re.compile(r"\s*(Current t|T)hread 0x[0-9a-f]+ .*\(most recent call first\)")
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')


def crash_line(log: str) -> str:
    """Return where Python was, "train.py:12 in step"; "" if nothing tells.

    The thread that crashed counts. One of a library has no Python frames: then the main thread
    does, which is the last that the dump has.
    """
    at = max(log.rfind(head) for head in HEADS)
    if at < 0:
        return ""
    stacks: list[list[Frame]] = []
    crashed: list[Frame] = []
    for line in log[at : at + LONGEST].splitlines():
        rest = unlabelled(line)[1]
        if thread := _THREAD.match(rest):
            stacks.append([])
            crashed = stacks[-1] if thread[1] == "Current t" else crashed
        elif stacks and (found := _FRAME.match(rest)):
            stacks[-1].append(Frame(found["file"], int(found["line"]), found["function"]))
    frames = next((stack for stack in (crashed, *reversed(stacks)) if stack), [])
    own = next(filter(is_own, frames), frames[0] if frames else None)
    if own is None:
        return ""
    return f"{own.file.replace(chr(92), '/').rpartition('/')[2]}:{own.line} in {own.function}"
