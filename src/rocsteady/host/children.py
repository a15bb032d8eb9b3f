"""Ask a child process one question and never wait longer than promised.

The child gets a session of its own, so that whatever it started is ended with it. A child that
cannot be killed (a process stuck in the kernel) is abandoned: waiting for it would wedge us too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum

from rocsteady.vocabulary import Value

if sys.platform == "win32":
    from rocsteady.host import windows as system
else:
    from rocsteady.host import posix as system

ANSWER_LIMIT = 64 * 1024  # bytes; more than any answer we ask for
LINGER = timedelta(milliseconds=50)  # between closing its output and its end
AFTER_KILL = timedelta(milliseconds=200)


class Outcome(Enum):
    """What became of the question."""

    ANSWERED = "answered"
    NOT_STARTED = "not started"
    TIMED_OUT = "timed out"
    UNKILLABLE = "cannot be killed"


class Answer(Value, frozen=True, kw_only=True):
    """What a child said before it ended or was ended."""

    outcome: Outcome
    text: str = ""
    exit_code: int | None = None


_abandoned: list[subprocess.Popen[bytes]] = []  # kept, so that nothing tries to reap them


def ask(
    command: Sequence[str], *, within: timedelta, environment: Mapping[str, str] | None = None
) -> Answer:
    """Run ``command``, keep what it prints, and end it with all its children at the deadline."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=os.sep,  # a child must not pick up modules of the user's folder
            **system.OWN_SESSION,
        )
    except (OSError, ValueError):
        return Answer(outcome=Outcome.NOT_STARTED)
    chunks: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(child, chunks), daemon=True)
    reader.start()
    reader.join(within.total_seconds())
    lingering = 0 if reader.is_alive() else LINGER.total_seconds()
    try:
        exit_code = child.wait(lingering)
    except subprocess.TimeoutExpired:
        system.kill_session(child.pid)
        try:
            child.wait(AFTER_KILL.total_seconds())
        except subprocess.TimeoutExpired:
            _abandoned.append(child)
            return Answer(outcome=Outcome.UNKILLABLE)
        return Answer(outcome=Outcome.TIMED_OUT, text=_decoded(chunks))
    return Answer(outcome=Outcome.ANSWERED, text=_decoded(chunks), exit_code=exit_code)


def _read_all(child: subprocess.Popen[bytes], chunks: list[bytes]) -> None:
    assert child.stdout is not None
    with child.stdout as stream:
        chunks.append(stream.read(ANSWER_LIMIT))


def _decoded(chunks: Sequence[bytes]) -> str:
    return b"".join(chunks).decode("utf-8", "replace")
