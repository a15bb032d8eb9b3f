"""How a blocked call can end is told for threads that really are blocked."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.hangs.looking.snapshot import take_snapshot
from rocsteady.hangs.proof.holders import PIDFD_GETFD, may_signal
from rocsteady.hangs.proof.wait_graph import wait_set
from rocsteady.hangs.values import Blocked, ProcessSeen, Wait, WayOut

if TYPE_CHECKING:
    from tests.hangs.conftest import Start, Victim

SOON = timedelta(seconds=5)
FOR_EVER = 10_000.0


def seen(victim: Victim) -> tuple[ProcessSeen, Blocked]:
    """Look until the victim, which has said that it will, is blocked for good."""
    deadline, last = time.monotonic() + 5, None
    while True:
        found = take_snapshot(victim.tree(), stacks=False, within=SOON)
        process = next(process for process in found.processes if process.pid == victim.pid)
        call = next(thread.blocked for thread in process.threads if thread.tid == victim.pid)
        if (call is not None and call == last) or time.monotonic() > deadline:
            assert call is not None
            return process, call
        last = call
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("state", "on", "own"),
    [
        ("lock", "lock 0x", True),
        ("semaphore", "shared lock 0x", True),
        ("gil_held_in_c", "lock 0x", True),
        ("pipe", "pipe ", False),
        ("pipe_with_both_ends_kept", "pipe ", True),
        ("epoll_on_pipe", "pipe ", False),
        ("socket_pair", "socket ", True),
        ("event_descriptor", "eventfd ", True),
        ("epoll_on_event_descriptor", "eventfd ", True),
        ("child", "process ", False),
        ("any_child", "the end of a child", False),
        ("child_by_waitid", "process ", False),
        ("child_by_pidfd", "process ", False),
    ],
)
def test_who_could_end_a_wait_that_has_no_end_of_its_own(
    start: Start, state: str, on: str, own: object
) -> None:
    victim = start(state)

    _, call = seen(victim)

    assert call.on.startswith(on)
    assert (call.left, call.way_out) == (None, None)
    assert set(call.pids) == {*victim.waits_for, *([victim.pid] if own else [])}


@pytest.mark.parametrize(
    ("state", "whole", "most"),
    [
        ("sleep", False, 0.0),
        ("select_on_nothing", True, FOR_EVER),
        ("poll_on_nothing", True, 1000.0),
        ("select_on_pipe", True, FOR_EVER),
        ("event_in_the_last_seconds", False, 60.0),
        ("semaphore_with_an_end", False, FOR_EVER),
    ],
)
def test_a_timeout_is_seen(start: Start, state: str, whole: object, most: float) -> None:
    victim = start(state)
    deadline = time.monotonic() + 5
    while True:
        found = take_snapshot([victim.pid], stacks=False, within=SOON)
        call = found.processes[0].threads[0].blocked
        if call is not None or time.monotonic() > deadline:
            break

    assert call is not None
    assert call.left is not None
    assert call.left <= most
    assert call.left == most or not whole


@pytest.mark.parametrize(
    ("state", "way_out"),
    [
        ("listening", WayOut.DESCRIPTOR),
        ("standard_input", WayOut.DESCRIPTOR),
        ("poll_on_pipe_and_input", WayOut.DESCRIPTOR),
        ("terminal", WayOut.DESCRIPTOR),
        ("timer_descriptor", WayOut.DESCRIPTOR),
        ("tcp_inside", WayOut.DESCRIPTOR),
        ("event_descriptor_that_the_kernel_may_signal", WayOut.DESCRIPTOR),
        ("mutex_in_a_file", WayOut.MEMORY),
        ("file_lock", WayOut.FILE_LOCK),
    ],
)
def test_what_is_outside_is_seen(start: Start, state: str, way_out: WayOut) -> None:
    _, call = seen(start(state))

    assert call.way_out is way_out
    assert call.who


@pytest.fixture
def as_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to look at mappings themselves, as the kernel does for all but the superuser."""
    stat = Path.stat

    def refused(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if "map_files" in path.parts:
            raise PermissionError(path)
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", refused)


@pytest.fixture(params=[False, True], ids=["superuser", "user"])
def any_user(request: pytest.FixtureRequest) -> None:
    if request.param:
        request.getfixturevalue("as_other_users")


NAMED = (
    ("mutex_in_shared_memory", "rocsteady-test-{}"),
    ("mutex_in_shared_memory_with_another_link", "rocsteady-test-{}"),
    ("named_semaphore", "sem.rocsteady-test-{}"),
    ("mutex_in_system_v_memory", ""),
    ("mutex_in_memfd", ""),
)


@pytest.mark.usefixtures("any_user")
@pytest.mark.parametrize(("state", "name"), NAMED)
def test_memory_that_another_process_can_open_is_open(start: Start, state: str, name: str) -> None:
    victim = start(state)
    try:
        _, call = seen(victim)
    finally:
        if name:
            Path("/dev/shm", name.format(victim.pid)).unlink()

    assert call.way_out is WayOut.MEMORY


@pytest.mark.usefixtures("any_user")
@pytest.mark.parametrize("state", ["semaphore", "mutex_in_shared_memory_without_links"])
def test_memory_that_nobody_can_come_to_any_more_is_closed(start: Start, state: str) -> None:
    victim = start(state)

    _, call = seen(victim)

    assert (call.way_out, call.pids) == (None, (victim.pid,))


@pytest.mark.parametrize("maps", [True, False])
def test_memory_that_an_outsider_has_mapped_or_open_is_open(start: Start, *, maps: bool) -> None:
    victim = start("mutex_in_shared_memory_without_links")
    folder = Path(f"/proc/{victim.pid}/fd")
    held = next(path for path in folder.iterdir() if "rocsteady-test" in str(path.readlink()))

    with held.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        if not maps:
            memory.close()
        _, shared = seen(victim)

    assert shared.way_out is WayOut.MEMORY
    assert f"process {os.getpid()}" in shared.who


def test_an_eventfd_that_an_outsider_holds_is_open(start: Start) -> None:
    victim = start("epoll_on_event_descriptor")
    folder = Path(f"/proc/{victim.pid}/fd")
    number = next(int(path.name) for path in folder.iterdir() if "eventfd" in str(path.readlink()))
    process = os.pidfd_open(victim.pid)
    ours = ctypes.CDLL(None).syscall(PIDFD_GETFD, process, number, 0)
    try:
        _, call = seen(victim)
    finally:
        os.close(ours)
        os.close(process)

    assert call.way_out is WayOut.DESCRIPTOR
    assert f"process {os.getpid()}" in call.who


def test_a_number_that_stands_for_something_else_by_now_is_not_followed(start: Start) -> None:
    victim = start("epoll_on_what_was_closed_here")
    time.sleep(0.2)

    found = take_snapshot([victim.pid], stacks=False, within=SOON)

    thread = found.processes[0].threads[0]
    assert (thread.wait, thread.blocked) == (Wait.WORLD, None)


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("/dev/kfd", False),
        ("/dev/dri/renderD128", False),
        ("/dev/null", False),
        ("/data/dev/train.bin", False),
        ("anon_inode:[eventpoll]", False),
        ("/dev/dxg", True),
        ("/dev/infiniband/uverbs0", True),
        ("/dev/vfio/7", True),
        ("anon_inode:[io_uring]", True),
        ("anon_inode:kvm-vm", True),
        ("/[aio] (deleted)", True),
    ],
)
def test_for_what_the_kernel_may_signal_an_eventfd(name: str, *, may: bool) -> None:
    assert may_signal(name) is may


def test_handlers_and_timers_are_seen(start: Start) -> None:
    process, _ = seen(start("alarm_and_timer"))

    assert process.handlers is not None
    assert {2, 14} <= set(process.handlers)
    assert 10 not in process.handlers
    assert process.timers == 1


SORTS = """
import subprocess, sys
child = subprocess.Popen(["sort"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
print('{"pid": %d, "waits_for": []}' % __import__("os").getpid(), flush=True)
child.wait()
"""


def test_sort_that_waits_for_a_pipe_of_ours_is_closed(start: Start) -> None:
    """Its handlers for alarms only remove files; it may have an alarm, as any program."""
    victim = start(sys.executable, "-c", SORTS)
    time.sleep(0.5)  # until it has read what there is

    seen = take_snapshot(victim.tree(), stacks=True, within=timedelta(seconds=20))

    found = wait_set(seen, (), load_waits())
    assert [each.what for each in found.exits] == []
    assert {"sort"} <= {member.process.name for member in found.members}
    assert any("may have its own alarm" in each for each in found.handlers)
