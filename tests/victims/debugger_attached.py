"""A debugger is attached to the trainer for 60 s (state t in ps), then lets it go on.

The debugger is a child that does with ptrace what `gdb -p PID` does, so that gdb is not needed. A
person sees the loss lines stop, because they look at the process in their debugger.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

from knobs import STEPS, lasting
from ordinary import AFTERWARDS, make_loader, make_model, make_optimizer, train

DEBUGGER = """
import ctypes, os, sys, time
ATTACH, DETACH, ALL_THREADS = 16, 17, 0x40000000
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
threads = [int(name) for name in os.listdir(f"/proc/{os.getppid()}/task")]
for thread in threads:
    if ptrace(ATTACH, thread, 0, 0):
        sys.exit(f"cannot attach: {os.strerror(ctypes.get_errno())}")
    os.waitpid(thread, ALL_THREADS)
time.sleep(float(sys.argv[1]))
for thread in threads:
    ptrace(DETACH, thread, 0, 0)
"""
PR_SET_PTRACER, ANYBODY = 0x59616D61, -1


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_long(ANYBODY), 0, 0, 0)  # if Yama is there
    model = make_model()
    optimizer = make_optimizer(model)
    step = train(model, optimizer, make_loader(STEPS))
    command = [sys.executable, "-c", DEBUGGER, str(lasting(60))]
    with subprocess.Popen(command) as debugger:
        train(model, optimizer, make_loader(AFTERWARDS), step)  # stands still in here
    print(f"debugged from {os.getpid()}: {debugger.returncode}\nDONE", flush=True)
    sys.exit(debugger.returncode)


if __name__ == "__main__":
    main()
