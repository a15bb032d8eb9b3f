"""A root as it was seen: every question is asked once and its answer kept.

What could not be read is kept too, with the reason, so that the doctor can say what it did not
check; and the whole of it can be written down as a recording. A read that never returns is given
up by `patiently`, which then carries on with the rest.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from rocsteady.model import Value
from rocsteady.system.root import Device, Disk, Root

ONE_READ = timedelta(milliseconds=750)  # an interpreter that is asked may take most of it
ALL_READS = timedelta(milliseconds=1000)
GRACE = timedelta(milliseconds=100)  # for the read that is under way when all time is used

_NUMBER = re.compile(r"[0-9]{1,20}|0[xX][0-9a-fA-F]{1,18}")  # 2^64 and a bit

T = TypeVar("T")
Question = tuple[str, str, tuple[int, ...]]  # operation, path, further arguments


class Unread(Value, frozen=True, kw_only=True):
    """One thing that is there and could not be read."""

    path: str
    why: str


class View:
    """Answers that never raise: what is missing or refused is ``None`` or empty."""

    def __init__(self, root: Root, *, deadline: float | None = None) -> None:
        self.root = root
        self.deadline = deadline
        self.answers: dict[Question, Any] = {}  # an OSError is an answer too
        self.waiting_for: tuple[Question, float] | None = None
        self.environment = root.environment
        self.user = root.user
        self.platform = root.platform

    def text(self, path: str) -> str | None:
        found: str | None = self._ask("text", path)
        return None if found is None else found.strip()

    def number(self, path: str) -> int | None:
        """Return the whole number that a file consists of; 0x and plain decimal are understood."""
        return whole_number(self.text(path))

    def piece(self, path: str, offset: int, size: int) -> bytes:
        return self._ask("piece", path, offset, size) or b""

    def names(self, path: str) -> tuple[str, ...]:
        return self._ask("names", path) or ()

    def is_folder(self, path: str) -> bool:
        return bool(self._ask("is_folder", path))

    def exists(self, path: str) -> bool:
        """Whether there is anything, readable or not."""
        self._ask("is_folder", path)
        return not isinstance(self.answers["is_folder", path, ()], OSError)

    def refused(self, path: str) -> bool:
        """Whether the kernel answered EPERM or EACCES."""
        self._ask("text", path)
        return isinstance(self.answers["text", path, ()], PermissionError)

    def resolve(self, path: str) -> str:
        """Return the path without links; as it is where that cannot be told."""
        return self._ask("resolve", path) or path

    def device(self, path: str) -> Device | None:
        found: Device | None = self._ask("device", path)
        return found

    def disk(self, path: str) -> Disk | None:
        found: Disk | None = self._ask("disk", path)
        return found

    def portrait(self, path: str) -> str | None:
        found: str | None = self._ask("answer", path)
        return found

    @property
    def facts_read(self) -> int:
        return sum(not isinstance(answer, OSError) for answer in self.answers.values())

    @property
    def unread(self) -> tuple[Unread, ...]:
        found = (
            Unread(path=path, why=_reason(answer))
            for (_, path, _), answer in sorted(self.answers.items(), key=lambda item: item[0][1])
            if isinstance(answer, OSError) and answer.errno not in _ABSENT
        )
        return tuple(dict.fromkeys(found))  # asked in two ways, refused once

    def _ask(self, operation: str, path: str, *arguments: int) -> Any:  # noqa: ANN401 - the callers above name the type of each operation
        question = (operation, path, arguments)
        if question not in self.answers:
            self.answers[question] = self._answer(question)
        answer = self.answers[question]
        return None if isinstance(answer, OSError) else answer

    def _answer(self, question: Question) -> Any:  # noqa: ANN401 - as above
        operation, path, arguments = question
        now = time.monotonic()
        if self.deadline is not None and now > self.deadline:
            return TimeoutError(errno.ETIMEDOUT, "no time left", path)
        self.waiting_for = (question, now)
        try:
            return getattr(self.root, operation)(path, *arguments)
        except OSError as error:
            return error
        except ValueError as error:  # a path with a NUL byte
            return OSError(errno.EINVAL, str(error), path)
        finally:
            self.waiting_for = None


_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO}


def patiently(root: Root, look: Callable[[View], T]) -> tuple[T, View]:
    """Run ``look`` over a view of ``root``; a read that hangs costs its time once, not the rest.

    ``look`` runs in a thread. When one of its reads does not return, that thread is left behind,
    the read is put down as unanswered, and ``look`` starts again on the answers gathered so far.
    """
    deadline = time.monotonic() + ALL_READS.total_seconds()
    view = View(root, deadline=deadline)
    while True:
        results: list[T | Exception] = []
        thread = threading.Thread(target=_attempt, args=(look, view, results), daemon=True)
        thread.start()
        stuck = _watch(thread, view)
        if stuck is None:
            break
        answers = dict(view.answers)
        answers[stuck] = TimeoutError(errno.ETIMEDOUT, "no answer", stuck[1])
        view = View(root, deadline=deadline)
        view.answers = answers
    result = results[0]
    if isinstance(result, Exception):
        raise result
    return result, view


def whole_number(text: str | None) -> int | None:
    """Read "42" or "0x2a"; anything else is not a number."""
    if text is None or not _NUMBER.fullmatch(text):
        return None
    return int(text, 16 if text[:2].lower() == "0x" else 10)


def _attempt(look: Callable[[View], T], view: View, results: list[T | Exception]) -> None:
    try:
        results.append(look(view))
    except Exception as error:  # noqa: BLE001 - handed to the thread that waits, which raises it
        results.append(error)


def _watch(thread: threading.Thread, view: View) -> Question | None:
    while True:
        thread.join(0.02)
        if not thread.is_alive():
            return None
        waiting, now = view.waiting_for, time.monotonic()
        out_of_time = view.deadline is not None and now > view.deadline + GRACE.total_seconds()
        if waiting and (out_of_time or now - waiting[1] > ONE_READ.total_seconds()):
            return waiting[0]


def _reason(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "no permission"
    if error.strerror:
        return error.strerror
    return os.strerror(error.errno) if error.errno else str(error)
