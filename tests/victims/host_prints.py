"""Prints: ``host_prints.py random BYTES``, ``bars``, ``size``, ``streams``, ``lines COUNT``."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable


def write_all(stream: int, data: bytes) -> None:
    while data:
        data = data[os.write(stream, data) :]


def print_random(count: str) -> None:
    write_all(1, random.Random(7).randbytes(int(count)))


def print_lines(count: str) -> None:
    block = b"".join(
        b"line %06d of a thousand, and some more text to make it long\n" % n for n in range(1000)
    )
    for _ in range(int(count) // 1000):
        write_all(1, block)


def print_bars() -> None:
    for step in range(101):
        sys.stderr.write(f"\r{step:3d}%|{'#' * (step // 10):<10}| {step}/100")
        sys.stderr.flush()
    sys.stderr.write("\ndone\n")


def print_size() -> None:
    def show() -> None:
        columns, rows = os.get_terminal_size(1)
        print(f"{columns}x{rows}", flush=True)

    def show_and_end(*_: object) -> None:
        show()
        sys.exit(0)

    signal.signal(signal.SIGWINCH, show_and_end)
    show()
    time.sleep(30)


def print_streams() -> None:
    facts = [os.isatty(stream) for stream in (0, 1, 2)]
    same = [os.fstat(stream).st_ino for stream in (1, 2)]
    write_all(1, b"out %s\n" % str(facts).encode())
    write_all(2, b"err %s\n" % str(same[0] == same[1]).encode())


KINDS: dict[str, Callable[..., None]] = {
    "random": print_random,
    "lines": print_lines,
    "bars": print_bars,
    "size": print_size,
    "streams": print_streams,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](*sys.argv[2:])
