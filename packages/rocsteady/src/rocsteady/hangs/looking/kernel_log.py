"""What the kernel said since the attempt began, from whichever source we may read.

Reset rings, page faults, the out-of-memory killer: half of all GPU trouble is told here and nowhere
else. An empty log clears nothing: a GPU can hang without a word.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from rocsteady.hangs.looking.process_tree import Members
from rocsteady.model import Value
from rocsteady.system.bounded_call import AnswerKind, ask

KMSG = Path("/dev/kmsg")
CLOCK_SLACK = 2.0  # seconds by which the kernel's clock may differ from ours
MAX_LINES = 5000  # kept: the newest
RECORD_LIMIT = 8192  # bytes; more than the kernel hands out at once
ANSWER_LIMIT = 4 * 1024 * 1024
JOURNAL = (
    "journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--no-hostname",
    "--output=short-monotonic", f"--lines={MAX_LINES}",
)  # fmt: skip

_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;([^\n]*)")
_JOURNAL_LINE = re.compile(r"^\[ *(\d+\.\d+)\] (?:kernel: )?(.*)$")
_PID = re.compile(
    r"\[(\d+)\]:? (?:segfault|general protection|trap )|\b[Pp]rocess (\d+) \(|\bpid[ =:]+(\d+)"
    r"|\btask \S+:(\d+) blocked|\[\S+:(\d+)\]$"
)
_ADDRESS = re.compile(r"\b([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?\b")
_OF_A_GPU = re.compile(r"\bamdgpu|\bkfd\b|\[drm")
_OF_THE_MACHINE = re.compile(r"\[Hardware Error\]|-- (?:Re)?[Bb]oot|critical temperature reached")


class KernelLog(Value, frozen=True, kw_only=True):
    """The lines, oldest first, and where they come from."""

    source: str  # "/dev/kmsg", "journalctl"; "" if none may be read
    lines: tuple[str, ...] = ()  # "[seconds since boot] text"
    why_not: str = ""


def read_kernel_log(since: float, *, within: timedelta, kmsg: Path = KMSG) -> KernelLog:
    """Return what was said since a moment of the monotonic clock."""
    if os.name == "nt":
        return KernelLog(source="", why_not="there is no kernel log to read on native Windows")
    deadline = time.monotonic() + within.total_seconds()
    try:
        entries = _from_kmsg(kmsg, deadline)
        return KernelLog(source=str(kmsg), lines=_spoken(entries, since))
    except OSError as refused:
        left = timedelta(seconds=max(0.0, deadline - time.monotonic()))
        return _from_journal(since, left, f"{kmsg}: {refused.strerror}")


def concerning(lines: Iterable[str], members: Members) -> tuple[str, ...]:
    """Return the lines that say something about an attempt.

    A line concerns it by a process or thread of its own, or by a GPU that it used. A line about
    "the GPU" without an address does if the attempt used every GPU there is; one about the machine
    as a whole, such as a machine check, concerns everybody.
    """
    return tuple(line for line in lines if _concerns(line, members))


def _concerns(line: str, members: Members) -> bool:
    addresses = set(_ADDRESS.findall(line))
    if addresses & members.gpus:
        return True
    pids = {int(number) for found in _PID.findall(line) for number in found if number}
    if pids or addresses:
        return not pids.isdisjoint(members.ids)
    if _OF_A_GPU.search(line):
        return bool(members.gpus) and members.gpus >= members.all_gpus
    return _OF_THE_MACHINE.search(line) is not None


def _from_kmsg(kmsg: Path, deadline: float) -> list[tuple[float, str]]:
    """Read the kernel's own ring: one record a read, until there is no more."""
    descriptor = os.open(kmsg, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    entries: list[tuple[float, str]] = []
    try:
        while time.monotonic() < deadline:
            try:
                record = os.read(descriptor, RECORD_LIMIT)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten meanwhile; the next read goes on
                continue
            if not record:
                break
            entries += parse_records(record.decode("utf-8", "replace"))
    finally:
        os.close(descriptor)
    return entries


def parse_records(text: str) -> list[tuple[float, str]]:
    """Read records as /dev/kmsg spells them: level, number, microseconds, flags; text."""
    found = (_RECORD.match(line) for line in text.splitlines())
    return [(int(record[1]) / 1e6, record[2]) for record in found if record]


def _from_journal(since: float, within: timedelta, why_not_kmsg: str) -> KernelLog:
    answer = ask(JOURNAL, within=within, limit=ANSWER_LIMIT)
    found = [_JOURNAL_LINE.match(line) for line in answer.text.splitlines()]
    entries = [(float(line[1]), line[2]) for line in found if line]
    if entries:
        return KernelLog(source="journalctl", lines=_spoken(entries, since))
    # The kernel always speaks when it starts, so that an empty journal is one we may not read.
    why = {
        AnswerKind.NOT_STARTED: "there is no journalctl",
        AnswerKind.ANSWERED: "journalctl shows no kernel messages",
    }.get(answer.outcome, "journalctl did not answer")
    return KernelLog(source="", why_not=f"{why_not_kmsg}; {why}")


def _spoken(entries: list[tuple[float, str]], since: float) -> tuple[str, ...]:
    lines = [f"[{at:12.6f}] {text}" for at, text in entries if at >= since - CLOCK_SLACK]
    return tuple(lines[-MAX_LINES:])
