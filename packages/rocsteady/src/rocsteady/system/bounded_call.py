"""Ask a child process one question and never wait longer than promised.

The child gets a session of its own, so that whatever it started is ended with it. A child that
cannot be killed (a process stuck in the kernel) is abandoned: waiting for it would wedge us too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum

from rocsteady.model import Value

ANSWER_LIMIT = 64 * 1024  # bytes; more than any answer we ask for
AFTER_KILL = timedelta(milliseconds=200)
LAST_WORDS = timedelta(milliseconds=50)  # for what was printed before the kill to arrive


class AnswerKind(Enum):
    ANSWERED = "answered"
    NOT_STARTED = "not started"
    TIMED_OUT = "timed out"
    UNKILLABLE = "cannot be killed"


class Answer(Value, frozen=True, kw_only=True):
    outcome: AnswerKind
    text: str = ""
    exit_code: int | None = None


_abandoned: list[subprocess.Popen[bytes]] = []  # kept, so that nothing tries to reap them


def ask(  # noqa: PLR0913 - a question, and how it may be asked, each by name
    command: Sequence[str],
    *,
    within: timedelta,
    environment: Mapping[str, str] | None = None,
    folder: str = os.sep,
    limit: int = ANSWER_LIMIT,
    complaints: bool = False,
    given: bytes = b"",
) -> Answer:
    """Run ``command``, keep what it prints, and end it with all its children at the deadline.

    At most ``limit`` bytes are kept; with ``complaints`` what it says on standard error is part.
    ``given`` is what it reads on standard input.
    """
    try:
        with _standard_input(given) as stdin:
            child = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if complaints else subprocess.DEVNULL,
                env=environment,
                cwd=folder,
                start_new_session=True,  # ignored on Windows, where doctor reads files only
            )
    except (OSError, ValueError):
        return Answer(outcome=AnswerKind.NOT_STARTED)
    chunks: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(child, chunks, limit), daemon=True)
    deadline = time.monotonic() + within.total_seconds()
    reader.start()
    reader.join(within.total_seconds())
    ended = _ends_before(deadline, child)
    kill_session(child.pid)  # also what it left behind, while its number is still its own
    try:
        exit_code = child.wait(AFTER_KILL.total_seconds())
    except subprocess.TimeoutExpired:
        _abandoned.append(child)
        return Answer(outcome=AnswerKind.UNKILLABLE)
    reader.join(LAST_WORDS.total_seconds())  # ends with the last process that holds the pipe
    if not ended:
        return Answer(outcome=AnswerKind.TIMED_OUT, text=_decoded(chunks))
    return Answer(outcome=AnswerKind.ANSWERED, text=_decoded(chunks), exit_code=exit_code)


@contextlib.contextmanager
def _standard_input(content: bytes) -> Iterator[int]:
    """Yield a file without a name, so that nobody waits for its reader; or none."""
    if not content:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as stream:
        stream.write(content)
        stream.seek(0)
        yield stream.fileno()


if sys.platform == "win32":  # unconfirmed: never run there

    def kill_session(leader: int) -> None:
        """End the process itself; this does not reach what it started."""
        with contextlib.suppress(OSError):  # it is gone, which Windows says in several ways
            os.kill(leader, signal.SIGTERM)  # TerminateProcess

    def has_ended(child: subprocess.Popen[bytes]) -> bool:
        """Return whether the child is over; its number stays taken while ``child`` is held."""
        return child.poll() is not None

else:

    def kill_session(leader: int) -> None:
        """Kill the group of a child that was not yet waited for. One already gone is fine."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)

    def has_ended(child: subprocess.Popen[bytes]) -> bool:
        """Return whether the child is over; its number stays taken until it is waited for."""
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ends_before(deadline: float, child: subprocess.Popen[bytes]) -> bool:
    while not has_ended(child):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


def _read_all(child: subprocess.Popen[bytes], chunks: list[bytes], limit: int) -> None:
    assert child.stdout is not None
    with child.stdout as stream:
        chunks.append(stream.read(limit))


def _decoded(chunks: Sequence[bytes]) -> str:
    return b"".join(chunks).decode("utf-8", "replace")
