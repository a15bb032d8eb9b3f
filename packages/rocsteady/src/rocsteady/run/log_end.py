"""The last line of a kept log, where rocsteady ended the attempt: the log itself says so then."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from rocsteady_train.untrusted_file import open_regular

from rocsteady.model import Outcome
from rocsteady.run.attempt_end import AttemptEnd
from rocsteady.system.logfile import Timestamp

STOPPED = "rocsteady: stopped this attempt: "
_LINE = re.compile(rf"^{STOPPED}.*\n?", re.MULTILINE)


def sign(log: Path, end: AttemptEnd) -> None:
    """Add the line, if it was not the script that ended the attempt."""
    why = _why(end)
    if not why:
        return
    line = Timestamp().at(time.time()) + f"{STOPPED}{why}.\n".encode(errors="replace")
    with contextlib.suppress(OSError), open_regular(log, follow=False, writable=True) as stream:
        stream.seek(0, os.SEEK_END)
        stream.write(line)  # no room, or no log: it stays without


def unsigned(text: str) -> str:
    """Return a log, without the times, as the script alone would have left it."""
    return _LINE.sub("", text)


def _why(end: AttemptEnd) -> str:
    if end.outcome in (Outcome.HUNG, Outcome.UNKILLABLE) and end.found is not None:
        place = f", at {end.found.verdict.place}" if end.found.verdict.place else ""
        return f"hung, {end.found.verdict.why}{place}"
    if end.outcome is Outcome.AT_EXIT:
        return "the script finished but did not exit"
    return ""
