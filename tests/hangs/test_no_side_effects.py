"""An inspection changes nothing: no call of the process returns because somebody looked."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.hangs.looking.snapshot import take_snapshot
from rocsteady.hangs.looking.stacks import may_be_stopped
from rocsteady.hangs.values import Snapshot

SOURCE = Path(__file__).parents[1] / "victims" / "blocking_calls.c"
SCRIPT = """
import ctypes, sys
ctypes.CDLL(sys.argv[1]).block(sys.argv[2].encode())
"""
SOON = timedelta(seconds=20)
# Calls that a stop makes fail, by signal(7) and as measured.
NOT_RESTARTED = {
    "recv_with_timeout", "send_with_timeout", "accept_with_timeout", "epoll_pipe",
    "epoll_with_timeout", "epoll_with_mask", "sigwaitinfo_one", "sigtimedwait_one", "semop_down",
    "semtimedop_down", "write_more_than_fits", "writev_more_than_fits", "send_more_than_fits",
    "sendmsg_more_than_fits", "recv_all_of_it", "recvmsg_all_of_it",
}  # fmt: skip
RESTART_SYSCALL = "219" if platform.machine() == "x86_64" else "128"
SWITCHES = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
STATE = ("State", "TracerPid", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    built = tmp_path_factory.mktemp("library") / "blocking_calls.so"
    flags = ["-O1", "-w", "-shared", "-fPIC", "-pthread", "-lrt", "-lutil"]
    subprocess.run([compiler, "-o", str(built), str(SOURCE), *flags], check=True)
    return built


@pytest.fixture
def blocked(library: Path, tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start one process for each kind of call, and wait until it is in the call."""
    names = ctypes.CDLL(str(library)).kinds
    names.restype = ctypes.c_char_p
    started = {
        kind: subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(library), kind],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for kind in names().decode().split()
    }
    try:
        for process in started.values():
            _until_still(process.pid)
        yield started
    finally:
        for process in started.values():
            process.kill()  # its children end with it
            process.communicate()


def _until_still(pid: int) -> None:
    deadline, before = time.monotonic() + 60, ""
    while time.monotonic() < deadline:
        now = f"{_call(pid)} {_status(pid)}"
        if now == before and "running" not in now and "libpython" not in now:
            return
        before = now
        time.sleep(0.3)
    raise AssertionError(f"process {pid} never blocked: {before}")


def _call(pid: int) -> str:
    return Path(f"/proc/{pid}/syscall").read_text().strip()


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    told = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {name: told[name] for name in (*STATE, *SWITCHES)}


def test_no_call_returns_because_it_was_looked_at(
    blocked: dict[str, subprocess.Popen[str]],
) -> None:
    assert len(blocked) >= 40
    pids = {kind: process.pid for kind, process in blocked.items()}
    before = {kind: (_call(pid), _status(pid)) for kind, pid in pids.items()}
    stoppable = {kind for kind, pid in pids.items() if may_be_stopped(pid)}
    assert not stoppable & NOT_RESTARTED
    assert len(stoppable) >= 20  # native frames can be had of most

    def everything(_: Snapshot) -> list[int]:
        return list(pids.values())

    take_snapshot(list(pids.values()), stacks=True, within=SOON, native=everything)
    seen = take_snapshot(list(pids.values()), stacks=True, within=SOON, native=everything)
    time.sleep(0.3)

    disturbed = {
        kind: process.stdout.read()
        for kind, process in blocked.items()
        if process.poll() is not None and process.stdout is not None
    }
    assert disturbed == {}
    assert {process.pid for process in seen.processes} == set(pids.values())
    for kind, pid in pids.items():
        call, status = before[kind]
        now = _call(pid)
        assert now == call or now.startswith(f"{RESTART_SYSCALL} "), kind
        changed = {name for name, value in _status(pid).items() if value != status[name]}
        assert not changed - (set(SWITCHES) if kind in stoppable else set()), kind
