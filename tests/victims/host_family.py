"""Starts processes that are hard to find or to end, says ``ready``, and sleeps.

``host_family.py KIND``; KIND is one of the names in ``KINDS`` below.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

NAP = 120


def nap() -> None:
    time.sleep(NAP)


def fork(body: object) -> int:
    """Start a process that does ``body`` and then sleeps."""
    pid = os.fork()
    if pid == 0:
        if callable(body):
            body()
        nap()
        os._exit(0)
    return pid


def deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def deaf_elsewhere() -> None:
    """Change session and forget the environment, twice removed: only descent finds it."""
    deaf()
    os.setsid()
    if os.fork():
        os._exit(0)
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", program], {})  # noqa: S606 - its purpose


def many() -> None:
    for _ in range(20):
        fork(lambda: [fork(deaf) for _ in range(9)])


def zombie() -> None:
    if os.fork() == 0:
        os._exit(0)


def stopped() -> None:
    os.kill(fork(None), signal.SIGSTOP)


def short_children() -> None:
    for _ in range(500):
        if os.fork() == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)


def two_in_vain() -> None:
    """Leave a child that holds our streams, and end."""
    subprocess.Popen(["sleep", str(NAP)])
    sys.exit(5)


KINDS = {
    "plain": lambda: None,
    "deaf": deaf,
    "elsewhere": lambda: fork(deaf_elsewhere),
    "many": many,
    "zombie": zombie,
    "stopped": stopped,
    "short": short_children,
    "leaves": two_in_vain,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]]()
    time.sleep(0.1)
    print("ready", flush=True)
    nap()
