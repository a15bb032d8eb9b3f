"""Reads standard input to its end, but stops for 60 s after the first half megabyte.

Its exit code is 0 if the last line was DONE. Not a victim: the other side of one.
"""

from __future__ import annotations

import sys
import time

from knobs import lasting

FIRST = 500_000


def main() -> int:
    data = sys.stdin.buffer.read(FIRST)
    time.sleep(lasting(60))
    while more := sys.stdin.buffer.read(1 << 20):
        data = data[-64:] + more
    last = data.split()[-1] if data.split() else b""
    print(last.decode(), flush=True)
    return 0 if last == b"DONE" else 1


if __name__ == "__main__":
    sys.exit(main())
