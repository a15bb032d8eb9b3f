"""Stacks from the process itself: only on a signal that it handles, whoever holds its GIL."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.hangs.looking.stacks import ask_for_stacks

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX")
WITHIN = timedelta(seconds=5)

# Holds the GIL for ever: PyDLL does not release it.
STUCK = """
import ctypes, faulthandler, os, signal, sys
ends = os.pipe()
stacks = open(f"{os.getpid()}.stacks", "a")
if sys.argv[1] != "not ready":
    faulthandler.register(signal.SIGURG, stacks)
def stuck_here():
    print("stuck", flush=True)
    if sys.argv[1] == "pauses":
        ctypes.PyDLL(None).pause()
        os._exit(1)
    ctypes.PyDLL(None).read(ends[0], ctypes.create_string_buffer(1), 1)
    os._exit(1)
stuck_here()
"""


@contextmanager
def stuck(folder: Path, how: str) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, how], cwd=folder, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)  # until it is in C
        yield process.pid
        assert process.poll() is None  # the signal did no harm
        process.kill()


def test_a_process_that_holds_its_gil_tells_where_it_is(tmp_path: Path) -> None:
    with stuck(tmp_path, "ready") as pid:
        told = ask_for_stacks([pid], tmp_path, within=WITHIN)

    assert told.startswith(f"process {pid}\n")
    assert "in stuck_here" in told


@pytest.mark.parametrize("how", ["not ready", "pauses"])
def test_one_that_the_signal_would_disturb_is_not_sent_it(tmp_path: Path, how: str) -> None:
    with stuck(tmp_path, how) as pid:
        assert ask_for_stacks([pid], tmp_path, within=WITHIN) == ""


def test_one_without_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with stuck(tmp_path, "ready") as pid:
        assert ask_for_stacks([pid, 2**22], tmp_path / "elsewhere", within=WITHIN) == ""
        assert (tmp_path / f"{pid}.stacks").read_bytes() == b""
