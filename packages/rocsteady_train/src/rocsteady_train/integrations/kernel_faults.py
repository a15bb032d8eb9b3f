"""What the kernel said while ranks ran: GPU faults and resets, the out-of-memory killer, crashes.

On AMD, a rank that a GPU fault ends has only "Signal 6" to tell. The reason is in the kernel log.
Of that, only lines about such faults are kept, and only those written since the ranks started.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path

KMSG = "/dev/kmsg"
RECORD_LIMIT = 8192  # bytes; more than the kernel hands out at once
MAX_RECORDS = 200_000
MAX_SECONDS = 0.5
MAX_LINES = 8  # the first, which are nearest to the cause
MAX_LENGTH = 300  # characters
OF_THIS_MACHINE = (
    "pid:[4026531836]"  # the kernel's own numbers of processes; a container has others
)

_RECORD = re.compile(r"\d+,\d+,\d+,[^;]*;([^\n]*)")
_GPU = re.compile(
    r"(?:amdgpu|kfd|\[drm).*(?:[Pp]age fault|in page starting at address|PROTECTION_FAULT"
    r"|[Ff]ault(?:y UTCL2| detected)|ring \S+ timeout|[Ww]aiting for fences timed out|\bMES\b.*fail"
    r"|(?:GPU|ASIC|MODE\d|BACO) (?:reset|[Rr]ecovery)|wedged|VRAM is lost|unrecoverable"
    r"|[Uu]ncorrectable|poison is consumed|[Oo]ver.?temperature|SMU: response:0xFFFFFFFF"
    r"|fence wait loop timeout|evict|HW exception|SVM mapping failed)"
    r"|NVRM: Xid|fallen off the bus|device lost from bus|AMD-Vi: Event logged"
    r"|\[Hardware Error\]: (?:CPU|System Fatal)|AER: (?:Multiple )?Uncorrect"
)
_OF_A_PROCESS = re.compile(
    r"Kill(?:ed)? process (\d+) |oom-kill:.*,pid=(\d+)"
    r"|\[(\d+)\]:? (?:segfault at|general protection|trap )"
)


class KernelFaults:
    def __init__(self, path: str = KMSG) -> None:
        """Begin to listen: what is written from now on counts."""
        self.why_not = ""
        self._descriptor = -1
        try:
            self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            self.forget()
        except OSError as error:
            self.why_not = error.strerror or str(error)

    def forget(self) -> None:
        """Leave out what was written until now."""
        if self._descriptor >= 0:
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def lines(self, pids: Collection[int]) -> list[str]:
        """Return the first lines about faults; those about processes only for these."""
        if self._descriptor < 0:
            return []
        found: list[str] = []
        with contextlib.suppress(OSError):
            for record in records(self._descriptor, time.monotonic() + MAX_SECONDS):
                found += [_plain(t) for t in _RECORD.findall(record) if concerns(t, pids)]
                if len(found) >= MAX_LINES:
                    break
        return found[:MAX_LINES]


def records(descriptor: int, deadline: float) -> Iterator[str]:
    """Yield what the kernel's own ring has, one record a read, until there is no more."""
    for _ in range(MAX_RECORDS):
        try:
            record = os.read(descriptor, RECORD_LIMIT)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EPIPE:  # overwritten meanwhile; the next read goes on
                continue
            raise
        if not record or time.monotonic() > deadline:
            return
        yield record.decode("utf-8", "replace")


def concerns(text: str, pids: Collection[int]) -> bool:
    """Return whether a line tells of a fault of a GPU or the machine, or of one of these."""
    if _GPU.search(text):
        return True
    process = _OF_A_PROCESS.search(text)
    if process is None:
        return False
    number = int(process[1] or process[2] or process[3])
    return number in pids or not has_the_kernels_numbers()


def has_the_kernels_numbers() -> bool:
    """Return whether processes have the numbers of the kernel log here: not in containers."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == OF_THIS_MACHINE
    except OSError:
        return False


def _plain(text: str) -> str:
    """Leave nothing in a line that a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text)[:MAX_LENGTH]
