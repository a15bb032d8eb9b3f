"""A command is started as exec would, its end is told, and its whole tree can be ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from host_children import Children, bearing

from rocsteady.system import launch
from rocsteady.system.child_end import Exit, StopOutcome, Stopping, StopResult
from rocsteady.system.keeper import is_alive, process_snapshot

SHORT = Stopping(
    terminate_wait=timedelta(seconds=0.5),
    kill_wait=timedelta(seconds=0.5),
)
KILLED = Exit(signal=signal.SIGKILL)

SUPERVISOR = """
import os, sys, time
from pathlib import Path
from rocsteady.system.child import Start, start_child
from rocsteady.system.child_end import DETACHED
child = start_child(Start(command=sys.argv[3:], environment=os.environ, folder=Path.cwd(),
                          run_id=sys.argv[1], log=Path(sys.argv[2]), terminal=DETACHED))
print(child.keeper, flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize("code", [0, 1, 75, 255])
def test_the_exit_code_is_the_commands_own(children: Children, code: int) -> None:
    child = children.start("sh", "-c", f"exit {code}")

    assert child.wait(20) == Exit(code=code)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP])
def test_the_signal_that_ended_it_is_told(children: Children, number: signal.Signals) -> None:
    child = children.start("sh", "-c", f"kill -{number.value} $$")

    assert child.wait(20) == Exit(signal=number)


def test_a_command_that_is_not_there_fails_in_the_caller(children: Children) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-command"):
        children.start("no-such-command")


def test_a_file_that_may_not_be_run_fails_in_the_caller(children: Children, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")

    with pytest.raises(PermissionError, match="plain"):
        children.start("./plain")


def test_a_folder_that_is_not_there_is_named(children: Children, tmp_path: Path) -> None:
    children.folder = tmp_path / "nowhere"

    with pytest.raises(FileNotFoundError, match="nowhere"):
        children.start("true")


def test_arguments_variables_and_folder_arrive_as_they_are(children: Children) -> None:
    program = "import os, sys; print(ascii(sys.argv[1:]), ascii(os.environ['ODD']), os.getcwd())"
    arguments = ["", "a b", "line\nbreak", "caf\u00e9", "\udcff"]

    child = children.start(sys.executable, "-c", program, *arguments, ODD="x=\udcfe=y")

    assert child.wait(20) == Exit(code=0)
    assert child._log._output_buffer.flush(2)
    folder = os.path.realpath(children.folder)
    assert children.logged() == f"{arguments!a} {chr(0x78) + '=' + chr(0xDCFE) + '=y'!a} {folder}"


def test_the_command_leads_a_session_and_ignores_the_signals_it_would_without_us(
    children: Children,
) -> None:
    status = "open('/proc/self/status').read().split('SigIgn:')[1].split()[0]"
    ignored = f"int({status}, 16) % 2**31"  # the C library keeps two above for itself
    show = f"import os, signal; print(signal.getsignal(2), {ignored}, os.getsid(0) == os.getpid())"
    bare = subprocess.run(
        [sys.executable, "-c", show], check=True, capture_output=True, text=True
    ).stdout.rpartition(" ")[0]
    child = children.start(sys.executable, "-c", show)

    child.wait(20)
    child._log._output_buffer.flush(2)

    assert children.logged().strip() == f"{bare} True"


def test_a_descriptor_from_our_starter_reaches_the_command(children: Children) -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)  # noqa: FBT003 - takes no keyword
    os.write(write, b"config\n")
    os.close(write)

    child = children.start("sh", "-c", f"cat /dev/fd/{read}")
    os.close(read)

    child.wait(20)
    child._log._output_buffer.flush(2)
    assert children.logged() == "config"


def test_wait_gives_up_in_time(children: Children) -> None:
    child = children.start("sleep", "60")
    began = time.monotonic()

    assert child.wait(0.1) is None
    assert child.poll() is None
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("kind", "how", "outcome"),
    [
        ("plain", StopOutcome.TERMINATED, Exit(signal=signal.SIGTERM)),
        ("deaf", StopOutcome.KILLED, KILLED),
        ("elsewhere", StopOutcome.KILLED, Exit(signal=signal.SIGTERM)),
        ("zombie", StopOutcome.TERMINATED, Exit(signal=signal.SIGTERM)),
        ("short", StopOutcome.TERMINATED, Exit(signal=signal.SIGTERM)),
    ],
)
def test_every_kind_of_family_is_ended(
    children: Children, kind: str, how: StopOutcome, outcome: Exit
) -> None:
    child = children.victim("host_family", kind)
    children.wait_for_log("ready")

    began = time.monotonic()
    ended = child.stop(SHORT)

    assert (ended.how, ended.exit, ended.unkillable) == (how, outcome, ())
    assert child.tree() == ()
    assert time.monotonic() - began < 15


def test_200_grandchildren_are_found_and_ended(children: Children) -> None:
    child = children.victim("host_family", "many")
    children.wait_for_log("ready")
    deadline = time.monotonic() + 20
    while len(child.tree()) < 1 + 20 + 180:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    began = time.monotonic()
    ended = child.stop(SHORT)

    assert (ended.how, ended.unkillable) == (StopOutcome.KILLED, ())
    assert time.monotonic() - began < 15


def test_a_stopped_process_hears_the_request_to_end(children: Children) -> None:
    child = children.victim("host_family", "stopped")
    children.wait_for_log("ready")

    ended = child.stop(SHORT, signal.SIGTERM)

    assert (ended.how, ended.exit) == (StopOutcome.TERMINATED, Exit(signal=signal.SIGTERM))


def test_without_a_first_signal_it_is_killed_at_once(children: Children) -> None:
    child = children.start("sleep", "60")

    began = time.monotonic()
    ended = child.stop(Stopping(), None)

    assert (ended.how, ended.exit) == (StopOutcome.KILLED, KILLED)
    assert time.monotonic() - began < 2


HANGS_AND_WOULD_SAVE = """
import os, signal, sys
from multiprocessing import shared_memory
name = sys.argv[1]
def save(*_):
    open(name + ".saved", "w").close()
    os._exit(0)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):
    signal.signal(number, save)
memory = shared_memory.SharedMemory(name, create=True, size=4096)
if os.fork():
    try: os.wait()
    finally: save()
print("ready", flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.sigwait([signal.SIGUSR1])
"""


def test_what_hangs_is_killed_without_a_chance_to_save_but_its_memory_is_cleaned_up(
    children: Children, tmp_path: Path
) -> None:
    name = f"rocsteady-test-{os.getpid()}"
    child = children.start(sys.executable, "-c", HANGS_AND_WOULD_SAVE, name)
    children.wait_for_log("ready")
    assert Path("/dev/shm", name).exists()

    ended = child.stop(Stopping(), signal.SIGKILL)

    assert (ended.how, ended.exit) == (StopOutcome.KILLED, KILLED)
    assert not list(tmp_path.rglob("*.saved"))
    assert not Path(f"{name}.saved").exists()
    assert not Path("/dev/shm", name).exists()


def test_one_that_ended_by_itself_needs_nothing(children: Children) -> None:
    child = children.start("true")
    child.wait(20)

    ended = child.stop(Stopping())

    assert ended == StopResult(exit=Exit(code=0), how=StopOutcome.BY_ITSELF)


def test_what_a_command_leaves_behind_is_ended_by_close(children: Children) -> None:
    child = children.victim("host_family", "leaves")
    assert child.wait(20) == Exit(code=5)
    assert len(child.tree()) == 1

    child.close()

    assert bearing(children.run_id) == []


def test_zombies_are_not_in_the_tree(children: Children) -> None:
    child = children.victim("host_family", "zombie")
    children.wait_for_log("ready")

    assert child.tree() == (child.pid,)


def test_a_command_outlives_its_keeper_and_is_still_found_and_ended(children: Children) -> None:
    child = children.start("sleep", "60")
    os.kill(child.keeper, signal.SIGKILL)

    assert child.wait(0.3) is None
    assert child.tree() == (child.pid,)
    ended = child.stop(SHORT)

    assert (ended.exit, ended.how) == (Exit(signal=signal.SIGTERM), StopOutcome.TERMINATED)


def test_a_keeper_that_is_killed_while_it_starts_is_replaced(
    children: Children, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed, keeper = tmp_path / "killed", " ".join(launch.KEEPER)
    program = f'test -e {killed} && exec {keeper} "$@"; touch {killed}; kill -9 $$'
    monkeypatch.setattr(launch, "KEEPER", ("sh", "-c", program, "sh"))

    child = children.start("sh", "-c", "exit 7")

    assert killed.exists()
    assert child.wait(20) == Exit(code=7)


def test_the_keeper_takes_no_notice_of_what_ends_others(children: Children) -> None:
    child = children.start("sleep", "60")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(child.keeper, number)

    assert child.wait(0.2) is None
    assert child.stop(SHORT).exit == Exit(signal=signal.SIGTERM)


def is_running(pid: int) -> bool:
    """Tell a process from a zombie: this process may have become its parent, and never asks."""
    seen = process_snapshot(pid)
    return seen is not None and is_alive(pid, seen)


@pytest.mark.parametrize("kind", ["plain", "elsewhere", "deaf"])
def test_kill_9_of_the_supervisor_leaves_nothing(children: Children, kind: str) -> None:
    victim = Path(__file__).parent.parent / "victims" / "host_family.py"
    command = [sys.executable, str(victim), kind]
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, children.run_id, str(children.log), *command],
        stdout=subprocess.PIPE,
    )
    assert supervisor.stdout is not None
    with supervisor.stdout as told:
        keeper = int(told.readline())
    children.wait_for_log("ready")
    family = bearing(children.run_id)

    supervisor.kill()
    supervisor.wait()
    deadline = time.monotonic() + 5
    while bearing(children.run_id) or is_running(keeper):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    assert family


def test_the_longest_stop_is_within_15_seconds() -> None:
    waits = Stopping()

    assert waits.terminate_wait >= waits.kill_wait > timedelta(0)  # the kernel needs time, too
    longest = waits.terminate_wait + waits.kill_wait

    assert longest < timedelta(seconds=15)
