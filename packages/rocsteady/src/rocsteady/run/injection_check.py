"""Tells a person where our part did not get into the training, so that its steps are not seen.

``python -I``, ``-E`` and ``-S`` keep it out, and so does a shell script that sets PYTHONPATH anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from rocsteady.hangs.parallel import run_all
from rocsteady.run.announcer import Announcer
from rocsteady.system import procfs

PYTHON = re.compile(r"(python|pypy)[0-9.]*(\.exe)?")
# Flags, then perhaps one that takes the rest of the word, or the next one.
OPTION = re.compile(r"-(?=[a-zA-Z])([A-VYZa-bd-ln-z]*)([cmWX]?)(.*)", re.DOTALL)
EVERY = 30.0  # seconds between looks for torch without a page
WITHIN = timedelta(seconds=1)
TORCH = b"libtorch"  # begins the names of its libraries


class HeartbeatCheck:
    """Looks for it in one attempt, and says it once."""

    def __init__(self, announcer: Announcer, *, pages: bool, began: float) -> None:
        self._announcer = announcer
        self._due: float | None = began + EVERY if pages else None  # None: nothing more to say

    def starts(self, command: Sequence[str]) -> None:
        """Say it before the start, if the command itself shows it."""
        option = keeps_us_out(command)
        if option and self._due is not None:
            self._say(f"{Path(command[0]).name} {option} prevents rocsteady's hooks from loading")

    def poll(self, tree: Callable[[], Sequence[int]], now: float, *, beats: bool) -> None:
        """Look now and then for a process that has torch, as long as none has a page."""
        if self._due is None or now < self._due:
            return
        self._due = now + EVERY
        if not beats:
            found = run_all({pid: partial(_has_torch, pid) for pid in tree()}, within=WITHIN)
            pid = next((pid for pid, has in found.results.items() if has), None)
            if pid is not None:
                why = "python -I, -E or -S, or a PYTHONPATH that was replaced"
                self._say(
                    f"process {pid} uses torch, but rocsteady's hooks were not loaded ({why})"
                )

    def _say(self, what: str) -> None:
        self._due = None
        self._announcer.say(f"{what}: steps cannot be observed.")


def keeps_us_out(command: Sequence[str]) -> str:
    """Give the option of this Python by which it would not run our part; "" if there is none."""
    words = iter(command)
    if not PYTHON.fullmatch(Path(next(words, "")).name):
        return ""
    for word in words:
        option = OPTION.fullmatch(word)
        if option is None:  # the script
            return ""
        flags, ends, rest = option.groups()
        for flag in flags:
            if flag in "IES":
                return f"-{flag}"
        if ends in ("c", "m"):  # what follows is the program and its arguments
            return ""
        if ends and not rest:
            next(words, "")
    return ""


def _has_torch(pid: int) -> bool:
    try:
        return TORCH in procfs.read(f"{procfs.PROC}/{pid}/maps", procfs.LARGE)
    except OSError:
        return False
