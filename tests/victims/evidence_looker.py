"""Looks at a process with fewer rights: ``evidence_looker.py PID (uid|seccomp)``."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from datetime import timedelta

import msgspec

from rocsteady.hangs.looking import stacks
from rocsteady.hangs.looking.snapshot import take_snapshot

NOBODY = 65534
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050001  # refuse with EPERM
TRACING = (101, 310, 311) if os.uname().machine == "x86_64" else (117, 270, 271)


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def forbid_tracing() -> None:
    """Let the kernel refuse ptrace and reading another's memory, as containers do."""
    code = struct.pack("=HBBI", LOAD, 0, 0, 0)
    for index, number in enumerate(TRACING):
        code += struct.pack("=HBBI", EQUAL, len(TRACING) - index, 0, number)
    code += struct.pack("=HBBI", RETURN, 0, 0, ALLOW) + struct.pack("=HBBI", RETURN, 0, 0, REFUSE)
    buffer = ctypes.create_string_buffer(code)
    program = Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    library = ctypes.CDLL(None, use_errno=True)
    assert library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert library.prctl(SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0


program = stacks.find_py_spy()
if sys.argv[2] == "uid":
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
else:
    forbid_tracing()
pid = int(sys.argv[1])
seen = take_snapshot(
    [pid], stacks=True, within=timedelta(seconds=5), native=lambda _: [pid], py_spy=program
)
print(msgspec.json.encode(seen).decode())
