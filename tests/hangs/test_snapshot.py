"""Each thing that a thread can wait for is told from the others, on threads that really do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.hangs.looking.snapshot import NO_PYTHON, in_native_code, take_snapshot
from rocsteady.hangs.looking.stacks import (
    NOT_INSTALLED,
    KeptStacks,
    KnownStacks,
    find_py_spy,
    short,
)
from rocsteady.hangs.values import ProcessSeen, Snapshot, ThreadSeen, Wait

if TYPE_CHECKING:
    from tests.hangs.conftest import Start, Victim

SOON = timedelta(seconds=5)
FREEZER = Path("/sys/fs/cgroup/freezer")


def of(seen: Snapshot, pid: int) -> ProcessSeen:
    return next(process for process in seen.processes if process.pid == pid)


def main_thread(seen: Snapshot, pid: int) -> ThreadSeen:
    return next(thread for thread in of(seen, pid).threads if thread.tid == pid)


def settled(victim: Victim, wanted: Callable[[ThreadSeen], bool]) -> ThreadSeen:
    """Look until the victim, which has said that it will, has entered its state."""
    deadline = time.monotonic() + 5
    while True:
        seen = take_snapshot(victim.tree(), stacks=False, within=SOON)
        thread = main_thread(seen, victim.pid)
        if wanted(thread) or time.monotonic() > deadline:
            return thread
        time.sleep(0.02)


def others(victim: Victim, thread: ThreadSeen) -> tuple[int, ...]:
    """Return the processes of a wait between processes, but for the waiting one."""
    between = thread.blocked is not None and thread.wait in (Wait.TREE, Wait.CHILD)
    pids = thread.blocked.pids if between and thread.blocked else ()
    return tuple(pid for pid in pids if pid != victim.pid) or pids


@pytest.mark.parametrize(
    ("state", "wait"),
    [
        ("runs", Wait.NOTHING),
        ("lock", Wait.LOCK),
        ("semaphore", Wait.LOCK),
        ("event_asked_every_5_seconds", Wait.LOCK),
        ("gil_held_in_c", Wait.LOCK),
        ("pipe", Wait.TREE),
        ("pipe_with_both_ends_kept", Wait.TREE),
        ("multiprocessing_queue", Wait.TREE),
        ("select_on_pipe", Wait.TREE),
        ("epoll_on_pipe", Wait.TREE),
        ("socket_pair", Wait.TREE),
        ("tcp_inside", Wait.TREE),
        ("tcp_to_ipv6_listener", Wait.TREE),
        ("child", Wait.CHILD),
        ("any_child", Wait.CHILD),
        ("child_by_waitid", Wait.CHILD),
        ("child_by_pidfd", Wait.CHILD),
        ("listening", Wait.WORLD),
        ("standard_input", Wait.WORLD),
        ("full_output", Wait.WORLD),
        ("poll_on_pipe_and_input", Wait.WORLD),
        ("terminal", Wait.WORLD),
        ("fifo_without_writer", Wait.WORLD),
        ("sleep", Wait.SLEEP),
        ("select_on_nothing", Wait.SLEEP),
        ("poll_on_nothing", Wait.SLEEP),
        ("event_with_a_long_end", Wait.SLEEP),
        ("uninterruptible", Wait.DISK),
        ("stopped", Wait.STOPPED),
        ("traced", Wait.TRACED),
    ],
)
def test_what_a_thread_waits_for(start: Start, state: str, wait: Wait) -> None:
    victim = start(state)

    thread = settled(victim, lambda seen: seen.wait is wait)

    assert (thread.wait, others(victim, thread)) == (wait, victim.waits_for)


@pytest.mark.parametrize("state", ["sleep", "event_asked_every_5_seconds", "multiprocessing_queue"])
def test_a_call_that_a_signal_restarted_is_still_told(start: Start, state: str) -> None:
    victim = start(state)
    before = settled(victim, lambda seen: seen.wait not in (Wait.NOTHING, Wait.DISK))
    os.kill(victim.pid, signal.SIGSTOP)
    settled(victim, lambda seen: seen.wait is Wait.STOPPED)

    os.kill(victim.pid, signal.SIGCONT)
    after = settled(victim, lambda seen: seen.wait is before.wait)

    assert (after.wait, others(victim, after)) == (before.wait, others(victim, before))


def test_a_thread_that_py_spy_reads_is_not_held_by_a_debugger(start: Start) -> None:
    victim = start("read_by_py_spy")

    thread = settled(victim, lambda seen: seen.state == "t")

    assert (thread.state, thread.wait) == ("t", Wait.UNKNOWN)


@pytest.fixture
def freezer() -> Iterator[Path]:
    folder = FREEZER / f"rocsteady-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no freezer of cgroup version 1 may be made here")
    yield folder
    (folder / "freezer.state").write_text("THAWED")
    for pid in (folder / "tasks").read_text().split():
        (FREEZER / "tasks").write_text(pid)
    folder.rmdir()


def test_a_frozen_group_waits_for_the_world_not_for_a_disk(start: Start, freezer: Path) -> None:
    victim = start("lock")
    (freezer / "tasks").write_text(str(victim.pid))
    (freezer / "freezer.state").write_text("FROZEN")

    thread = settled(victim, lambda seen: seen.wait is Wait.WORLD)

    assert thread.wait is Wait.WORLD


def test_io_memory_and_processor_time_are_counted(start: Start) -> None:
    victim = start("full_output")
    seen = of(take_snapshot([victim.pid], stacks=False, within=SOON), victim.pid)

    assert seen.python
    assert seen.name.startswith("python")
    assert seen.parent == os.getpid()
    assert seen.read_bytes > 10_000  # its own modules
    assert seen.written_bytes > 0
    assert seen.rss_bytes > 1_000_000
    assert seen.threads[0].cpu >= 0


def test_stacks_are_the_threads_own(start: Start) -> None:
    victim = start("lock")
    settled(victim, lambda seen: seen.wait is Wait.LOCK)

    seen = take_snapshot([victim.pid], stacks=True, within=SOON)

    assert (seen.stacks, seen.why_no_stacks) == (True, "")
    frames = main_thread(seen, victim.pid).frames
    assert frames is not None
    assert frames[0].startswith("lock (victims/evidence_waits.py:")
    assert frames[-1].startswith("<module> (victims/evidence_waits.py:")


def test_the_place_is_told_while_c_holds_the_gil(start: Start) -> None:
    victim = start("gil_held_in_c")
    settled(victim, lambda seen: seen.wait is Wait.LOCK)

    seen = take_snapshot([victim.pid], stacks=True, within=SOON, native=lambda _: [victim.pid])

    thread = main_thread(seen, victim.pid)
    assert thread.frames is not None
    assert thread.frames[0].startswith("blocked_in_c (victims/evidence_waits.py:")
    assert thread.native is not None
    assert any("pthread_mutex_lock" in name for name in thread.native)


def test_native_frames_are_taken_of_a_process_that_runs(start: Start) -> None:
    victim = start("runs")

    seen = take_snapshot([victim.pid], stacks=True, within=SOON, native=in_native_code)

    thread = main_thread(seen, victim.pid)
    assert thread.frames is not None
    assert thread.frames[0].startswith("runs (")
    assert thread.native is not None


def counting(folder: Path) -> tuple[Path, Path]:
    """Return a py-spy that writes down how it was called, and where."""
    program, calls = folder / "py-spy", folder / "calls"
    program.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec {find_py_spy()} "$@"\n')
    program.chmod(0o755)
    return program, calls


@pytest.mark.parametrize("native", [True, False])
def test_stacks_are_not_taken_again_of_a_thread_that_did_not_run(
    start: Start, tmp_path: Path, *, native: bool
) -> None:
    victim = start("gil_held_in_c")
    settled(victim, lambda seen: seen.wait is Wait.LOCK)
    program, calls = counting(tmp_path)
    known = KnownStacks(KeptStacks(), KeptStacks())

    seen = [
        take_snapshot(
            [victim.pid],
            stacks=True,
            within=SOON,
            native=lambda _: [victim.pid] if native else (),
            known=known,
            py_spy=str(program),
        )
        for _ in range(3)
    ]

    threads = [main_thread(each, victim.pid) for each in seen]
    assert threads[0].frames
    assert bool(threads[0].native) is native
    assert {(each.frames, each.native) for each in threads} == {
        (threads[0].frames, threads[0].native)
    }
    assert calls.read_text().count("--nonblocking") == 1 + native  # the pause made it run
    assert calls.read_text().count("--native") == native


def test_the_stack_of_a_thread_that_waits_again_for_the_same_is_taken_again(start: Start) -> None:
    victim = start("one_lock_at_two_lines")
    settled(victim, lambda seen: seen.wait is Wait.LOCK)
    known = KnownStacks(KeptStacks(), KeptStacks())

    def main_of_a_snapshot() -> ThreadSeen:
        return main_thread(
            take_snapshot([victim.pid], stacks=True, within=SOON, known=known), victim.pid
        )

    before = main_of_a_snapshot()
    os.kill(victim.pid, signal.SIGUSR1)
    settled(victim, lambda seen: seen.wait is Wait.LOCK and seen.switches > before.switches)
    after = main_of_a_snapshot()

    assert (after.wait, after.blocked) == (before.wait, before.blocked)
    assert before.frames
    assert after.frames
    lines = [int(frames[0].rpartition(":")[2][:-1]) for frames in (before.frames, after.frames)]
    assert lines[1] == lines[0] + 1


@pytest.mark.parametrize(("state", "wait"), [("stopped", Wait.STOPPED), ("traced", Wait.TRACED)])
def test_a_stopped_process_gives_its_stack_and_stays_stopped(
    start: Start, state: str, wait: Wait
) -> None:
    victim = start(state)
    settled(victim, lambda seen: seen.wait is wait)

    seen = take_snapshot([victim.pid], stacks=True, within=SOON, native=lambda _: [victim.pid])

    assert main_thread(seen, victim.pid).frames
    assert settled(victim, lambda seen: seen.wait is wait).wait is wait


def test_zombies_and_the_dead_are_left_out(start: Start) -> None:
    victim = start("zombie")
    deadline = time.monotonic() + 5
    while victim.pid in victim.tree():  # until it has ended; nobody ever waits for it
        assert time.monotonic() < deadline
        time.sleep(0.01)

    seen = take_snapshot([victim.root, victim.pid, 2**22 - 1], stacks=True, within=SOON)

    assert Path(f"/proc/{victim.pid}").exists()
    assert [process.pid for process in seen.processes] == [victim.root]


def test_a_process_that_dies_during_the_look_costs_only_itself(start: Start) -> None:
    victim = start("sixty")
    pids = victim.tree()
    children = [pid for pid in pids if pid != victim.pid]
    for pid in children[::2]:
        os.kill(pid, signal.SIGKILL)  # the kernel ends them while we look

    seen = take_snapshot(pids, stacks=True, within=SOON)

    assert set(children[1::2]) | {victim.pid} <= {process.pid for process in seen.processes}
    assert main_thread(seen, victim.pid).frames


def test_sixty_processes_with_stacks_take_less_than_two_seconds(start: Start) -> None:
    victim = start("sixty")
    pids = victim.tree()
    assert len(pids) == 60

    seconds = []
    for _ in range(3):  # the best of three, because other tests run beside this one
        began = time.monotonic()
        seen = take_snapshot(pids, stacks=True, within=SOON)
        seconds.append(time.monotonic() - began)
        assert all(main_thread(seen, pid).frames for pid in pids)
    assert min(seconds) < 2


def test_the_look_is_back_in_time_though_stacks_are_not(start: Start, tmp_path: Path) -> None:
    victim = start("sleep")
    settled(victim, lambda seen: seen.wait is Wait.SLEEP)
    never = tmp_path / "py-spy"
    never.write_text("#!/bin/sh\nexec sleep 100\n")
    never.chmod(0o700)

    began = time.monotonic()
    seen = take_snapshot(
        [victim.pid], stacks=True, within=timedelta(seconds=0.5), py_spy=str(never)
    )

    assert time.monotonic() - began < 1
    assert (seen.stacks, seen.why_no_stacks) == (False, "py-spy did not answer in time")
    assert main_thread(seen, victim.pid).wait is Wait.SLEEP


def test_without_py_spy_the_rest_is_seen(start: Start) -> None:
    victim = start("sleep")
    settled(victim, lambda seen: seen.wait is Wait.SLEEP)
    seen = take_snapshot([victim.pid], stacks=True, within=SOON, py_spy="/not/there/py-spy")

    assert (seen.stacks, seen.why_no_stacks) == (False, NOT_INSTALLED)
    assert main_thread(seen, victim.pid).wait is Wait.SLEEP


def test_a_tree_without_python_says_so(start: Start) -> None:
    victim = start("/bin/sh", "-c", 'echo "{\\"pid\\": $$, \\"waits_for\\": []}"; sleep 100; true')
    seen = take_snapshot(victim.tree(), stacks=True, within=SOON)

    assert (seen.stacks, seen.why_no_stacks) == (False, NO_PYTHON)
    assert not any(process.python for process in seen.processes)


def test_a_package_outside_of_the_project_is_not_the_users_own_code(tmp_path: Path) -> None:
    library, project = tmp_path / "opt" / "trainer" / "engine", tmp_path / "home" / "project"
    for folder in (library, project / "models"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (library.parent / "__init__.py").touch()
    own = (f"{project}/",)

    assert short(f"{library}/loop.py", own) == "site-packages/trainer/engine/loop.py"
    assert short(f"{project}/models/net.py", own) == "models/net.py"
    assert short(f"{tmp_path}/opt/tool.py", own) == "opt/tool.py"  # a script, in no package
