"""A Job Object: Windows ends everything in it when we close it or die. Unconfirmed: never run."""

from __future__ import annotations

import ctypes
import sys
from ctypes import wintypes

assert sys.platform == "win32"  # tells mypy which system this is for

KILL_ON_JOB_CLOSE = 0x2000
EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
PROCESS_LIST = 3  # JobObjectBasicProcessIdList
MOST_PROCESSES = 4096


class _BasicLimits(ctypes.Structure):
    _fields_ = (
        ("PerProcessUserTimeLimit", wintypes.LARGE_INTEGER),
        ("PerJobUserTimeLimit", wintypes.LARGE_INTEGER),
        ("LimitFlags", wintypes.DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", wintypes.DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", wintypes.DWORD),
        ("SchedulingClass", wintypes.DWORD),
    )


class _ExtendedLimits(ctypes.Structure):
    _fields_ = (
        ("BasicLimitInformation", _BasicLimits),
        ("IoInfo", ctypes.c_ulonglong * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


class _ProcessList(ctypes.Structure):
    _fields_ = (
        ("NumberOfAssignedProcesses", wintypes.DWORD),
        ("NumberOfProcessIdsInList", wintypes.DWORD),
        ("ProcessIdList", ctypes.c_size_t * MOST_PROCESSES),
    )


class JobObject:
    """One job, with the processes that were put in it and whatever they start."""

    def __init__(self) -> None:
        self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        self._kernel.CreateJobObjectW.restype = wintypes.HANDLE
        self._handle = wintypes.HANDLE(self._kernel.CreateJobObjectW(None, None))
        limits = _ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = KILL_ON_JOB_CLOSE
        self._check(
            self._kernel.SetInformationJobObject(
                self._handle, EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
            )
        )

    def add(self, process: int) -> None:
        """Put a process, by its handle, into the job."""
        handle = wintypes.HANDLE(process)
        self._check(self._kernel.AssignProcessToJobObject(self._handle, handle))

    def members(self) -> tuple[int, ...]:
        """Give the pids of all that are in it now."""
        found = _ProcessList()
        self._kernel.QueryInformationJobObject(
            self._handle, PROCESS_LIST, ctypes.byref(found), ctypes.sizeof(found), None
        )
        return tuple(found.ProcessIdList[: found.NumberOfProcessIdsInList])

    def kill(self) -> None:
        """End all that are in it."""
        self._kernel.TerminateJobObject(self._handle, 1)

    def close(self) -> None:
        """Let go of it, which ends whatever is left in it."""
        self._kernel.CloseHandle(self._handle)

    def _check(self, done: int) -> None:
        if not done:
            raise ctypes.WinError(ctypes.get_last_error())
