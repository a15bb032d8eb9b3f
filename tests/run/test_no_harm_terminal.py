"""On a real terminal: the command sees a terminal of the same size, and the screen is the same."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import time
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("terminals are of POSIX; Windows is unconfirmed", allow_module_level=True)

import fcntl
import pty
import struct
import termios

from side_by_side import SideBySide, as_a_shell, left_behind
from torch_stand_in import CRASHES, stand_in_torch

PYTHON = sys.executable
WITHIN = 30  # seconds
SAYS = """
    import os, shutil, signal, sys, termios
    print([os.isatty(n) for n in (0, 1, 2)], [os.get_terminal_size(n) for n in (0, 1, 2)])
    print(shutil.get_terminal_size(), len({os.ttyname(n) for n in (0, 1, 2)}))
    with open("/dev/tty", "r+b", buffering=0) as tty:
        print("controls", os.tcgetpgrp(tty.fileno()) == os.getpgrp())
        tty.write(b"by the door\\n")
    modes = termios.tcgetattr(0)
    print(modes[0], modes[2], modes[3], modes[4], modes[5], modes[6][:17])
    print(sys.stdout.line_buffering, sys.stdout.encoding, signal.getsignal(signal.SIGINT))
    for done in range(3): sys.stderr.write(f"\\r{done} of 3"); sys.stderr.flush()
    print("\\n\\x1b[1mbold\\x1b[0m\\ttab ä", flush=True)
    print("read", repr(input("name? ")))
"""


def on_a_terminal(
    command: list[str], runs: SideBySide, typed: bytes, *, rows: int, columns: int
) -> tuple[int, bytes]:
    """Run it on a terminal of its own, type once it asks, and return code and screen."""
    pid, desk = pty.fork()
    if pid == 0:
        os.chdir(runs.folder)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # it is ignored below a shell's &
        time.sleep(0.2)  # until the terminal has its size
        os.execve(command[0], command, runs.environment)  # noqa: S606 - the person's shell
    fcntl.ioctl(desk, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    screen, deadline = b"", time.monotonic() + WITHIN
    with contextlib.suppress(OSError):  # the end of a terminal
        while select.select([desk], [], [], deadline - time.monotonic())[0]:
            screen += os.read(desk, 65536)
            if typed and b"name? " in screen:
                time.sleep(0.3)  # Python misses a signal just before it begins to read
                os.write(desk, typed)
                typed = b""
        os.kill(pid, signal.SIGKILL)
        pytest.fail(f"it does not end: {screen!r}")
    _, status = os.waitpid(pid, 0)
    os.close(desk)
    return as_a_shell(os.waitstatus_to_exitcode(status)), screen


def without_ours(screen: bytes) -> bytes:
    """Leave out our lines, and those below them that begin with blanks."""
    return re.sub(rb"(?m)^\x1b\[2mrocsteady  [^\n]*\n(?: {11}[^\n]*\n)*", b"", screen)


@pytest.fixture
def runs(tmp_path: Path) -> SideBySide:
    return SideBySide(tmp_path)


@pytest.mark.parametrize("size", [(24, 80), (51, 173)])
def test_the_terminal_is_as_without_us(runs: SideBySide, size: tuple[int, int]) -> None:
    rows, columns = size
    command = [PYTHON, runs.script(SAYS)]

    bare = on_a_terminal(command, runs, b"Ada\n", rows=rows, columns=columns)
    code, screen = on_a_terminal(
        [*runs.watching(), *command], runs, b"Ada\n", rows=rows, columns=columns
    )

    assert (code, without_ours(screen)) == bare
    assert f"columns={columns}, lines={rows}".encode() in screen
    assert b"read 'Ada'" in screen
    assert left_behind(runs.name) == []


def test_an_interrupt_key_is_an_interrupt(runs: SideBySide) -> None:
    script = runs.script(
        "try: input('name? ')\nexcept KeyboardInterrupt: print('asked to end'); raise"
    )
    command = [PYTHON, script]

    bare = on_a_terminal(command, runs, b"\x03", rows=24, columns=80)
    code, screen = on_a_terminal([*runs.watching(), *command], runs, b"\x03", rows=24, columns=80)

    assert (code, without_ours(screen)) == bare
    assert code == 130
    assert left_behind(runs.name) == []


@pytest.mark.slow
def test_the_terminal_of_an_attempt_from_a_standby_is_the_same(runs: SideBySide) -> None:
    runs.environment["PYTHONPATH"] = stand_in_torch(runs)
    command = [PYTHON, runs.script(CRASHES + SAYS)]

    (runs.folder / "crashes").write_text("0")
    bare = on_a_terminal(command, runs, b"Ada\n", rows=51, columns=173)
    (runs.folder / "crashes").write_text("4")
    watching = runs.watching("--resume", "never", "--max-attempts", "5")
    code, screen = on_a_terminal([*watching, *command], runs, b"Ada\n", rows=51, columns=173)

    assert (code, without_ours(screen)) == bare
    assert b"restarted from a standby" in runs.bare(*runs.rocsteady, "report").out
    assert left_behind(runs.name) == []
