"""On a terminal: bytes, size and keys are as without us, and the terminal is given back."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from host_children import Children, Reader, bearing, missed
from supervised import until

from rocsteady.system.child import Child
from rocsteady.system.child_end import Exit, TerminalUse

VICTIMS = Path(__file__).parent.parent / "victims"

# A shell with job control, made of the calls that matter: it starts us as a job on the terminal,
# says when the job stopped and how the terminal then is, and takes it to the foreground again.
SHELL = """
import os, signal, subprocess, sys, termios, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def cooked():
    return bool(termios.tcgetattr(0)[3] & termios.ICANON)
job = subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], process_group=0) \
    if sys.version_info >= (3, 11) else subprocess.Popen(
        [sys.executable, "-c", sys.argv[1], *sys.argv[2:]], preexec_fn=os.setpgrp)
os.tcsetpgrp(0, job.pid)
_, status = os.waitpid(job.pid, os.WUNTRACED)
os.tcsetpgrp(0, os.getpgrp())
print("SHELL stopped", os.WIFSTOPPED(status), "cooked", cooked(), flush=True)
time.sleep(2)
os.tcsetpgrp(0, job.pid)
os.killpg(job.pid, signal.SIGCONT)
_, status = os.waitpid(job.pid, 0)
os.tcsetpgrp(0, os.getpgrp())
print("SHELL ended", os.waitstatus_to_exitcode(status), "cooked", cooked(), flush=True)
"""

SUPERVISOR = """
import os, sys
from pathlib import Path
from rocsteady.system.child import Start, start_child
child = start_child(Start(command=sys.argv[3:], environment=os.environ, folder=Path.cwd(),
                          run_id=sys.argv[1], log=Path(sys.argv[2])))
code = child.wait().code
child.close()
sys.exit(code)
"""

COUNTER = """
import time
for n in range(40):
    print("tick", n, flush=True)
    time.sleep(0.05)
"""


class Desk:
    """A terminal with nobody at it but the test."""

    def __init__(self) -> None:
        self.keys, self.line = os.openpty()
        self.resize(24, 80)
        self.screen = Reader(os.dup(self.keys))
        self.use = TerminalUse(stdin=self.line, stdout=self.line, stderr=self.line)
        self.modes = termios.tcgetattr(self.line)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.line, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.keys, keys)

    def end(self, child: Child) -> Exit | None:
        outcome: Exit | None = child.wait(30)
        child.close()
        assert termios.tcgetattr(self.line) == self.modes
        self.leave()
        return outcome

    def leave(self) -> None:
        os.close(self.line)
        self.screen.all()
        os.close(self.keys)


@pytest.fixture
def desk(children: Children) -> Desk:  # noqa: ARG001 - it looks for what is left
    return Desk()


@pytest.mark.parametrize("what", [["random", "1000000"], ["bars"], ["lines", "1000"]])
def test_the_screen_gets_the_same_bytes(children: Children, desk: Desk, what: list[str]) -> None:
    child = children.victim("host_prints", *what, use=desk.use)
    assert desk.end(child) == Exit(code=0)
    alone = Desk()
    subprocess.run(
        [sys.executable, str(VICTIMS / "host_prints.py"), *what],
        stdin=alone.line,
        stdout=alone.line,
        stderr=alone.line,
        check=True,
    )
    alone.leave()

    assert desk.screen.so_far() == alone.screen.so_far()


def test_all_three_streams_are_one_terminal(children: Children, desk: Desk) -> None:
    desk.end(children.victim("host_prints", "streams", use=desk.use))

    assert desk.screen.so_far() == b"out [True, True, True]\r\nerr True\r\n"


def test_only_what_is_a_terminal_becomes_one(children: Children, desk: Desk) -> None:
    out, ours = os.pipe()
    use = TerminalUse(stdin=desk.line, stdout=ours, stderr=desk.line)
    piped = Reader(out)

    desk.end(children.victim("host_prints", "streams", use=use))
    os.close(ours)

    assert piped.all() == b"out [True, False, True]\n"
    assert desk.screen.so_far() == b"err False\r\n"


def test_the_size_is_copied_and_so_is_a_change(children: Children, desk: Desk) -> None:
    desk.resize(33, 101)
    child = children.victim("host_prints", "size", use=desk.use)
    desk.screen.wait_for(b"101x33")

    desk.resize(44, 120)
    os.kill(os.getpid(), signal.SIGWINCH)

    assert b"120x44" in desk.screen.wait_for(b"120x44", within=3)
    desk.end(child)


def test_what_is_typed_arrives_and_is_echoed_once(children: Children, desk: Desk) -> None:
    child = children.start("sh", "-c", "read line; echo got $line", use=desk.use)
    desk.type(b"hello\r")

    desk.end(child)

    assert desk.screen.so_far() == b"hello\r\ngot hello\r\n"


def test_the_interrupt_key_reaches_the_command_and_is_counted(
    children: Children, desk: Desk
) -> None:
    child = children.victim("host_family", "plain", use=desk.use)
    desk.screen.wait_for(b"ready")

    desk.type(b"\x03")

    assert desk.end(child) == Exit(signal=signal.SIGINT)
    assert len(child.interrupts) == 1


def test_a_passed_on_interrupt_reaches_the_foreground(children: Children, desk: Desk) -> None:
    child = children.victim("host_family", "plain", use=desk.use)
    desk.screen.wait_for(b"ready")

    child.pass_on(signal.SIGINT)

    assert desk.end(child) == Exit(signal=signal.SIGINT)
    assert len(child.interrupts) == 1


def test_a_terminal_that_goes_away_ends_nothing(children: Children, desk: Desk) -> None:
    child = children.start(sys.executable, "-c", COUNTER, use=desk.use)
    desk.screen.wait_for(b"tick 3")

    child.detach_terminal()

    assert desk.end(child) == Exit(code=0)
    assert b"tick 39" not in desk.screen.so_far()
    assert children.logged().splitlines()[-1] == "tick 39"
    assert missed(child) > 0


def test_the_terminal_is_raw_meanwhile_but_for_output(children: Children, desk: Desk) -> None:
    child = children.victim("host_family", "plain", use=desk.use)
    desk.screen.wait_for(b"ready")

    modes = termios.tcgetattr(desk.line)

    assert modes[1] == desk.modes[1]
    assert not modes[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
    child.pass_on(signal.SIGINT)
    desk.end(child)


def states(run_id: str) -> set[str]:
    return {Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in bearing(run_id)}


def test_suspend_stops_the_tree_gives_the_terminal_back_and_goes_on(
    children: Children, desk: Desk
) -> None:
    command = [sys.executable, "-c", COUNTER]
    shell = subprocess.Popen(
        [
            *("setsid", "--ctty", sys.executable, "-c", SHELL),
            *(SUPERVISOR, children.run_id, str(children.log), *command),
        ],
        stdin=desk.line,
        stdout=desk.line,
        stderr=desk.line,
    )
    desk.screen.wait_for(b"tick 5")
    desk.type(b"\x1a")
    desk.screen.wait_for(b"SHELL stopped True cooked True")
    until(lambda: states(children.run_id) == {"T"}, within=1)
    time.sleep(0.1)  # what was on its way arrives
    ticks = desk.screen.so_far().count(b"tick")
    time.sleep(0.3)

    assert states(children.run_id) == {"T"}
    assert desk.screen.so_far().count(b"tick") == ticks
    desk.screen.wait_for(b"SHELL ended 0 cooked True")
    assert shell.wait(20) == 0
    assert desk.screen.so_far().count(b"tick") == 40
    desk.leave()
