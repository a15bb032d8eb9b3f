"""The keeper: a small process between supervisor and command, so that nothing outlives us.

Started as ``python -I -S keeper.py CONTROL STATUS RUN`` with the command's streams as its
own. It reads its order from the pipe CONTROL, starts the command in a session of its own, becomes
the parent of whatever the command orphans, and writes one JSON object a line to the pipe STATUS.
When CONTROL ends, because the supervisor closed it or died, the whole tree is ended.

The supervisor imports ``Family`` and ``kill_all`` from here, so there is one way to find a tree. It
reads /proc/PID/stat itself: it is started as a bare file and cannot import ``procfs``.
Standard library only, and little of it: this process lives as long as the training.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, NoReturn, Protocol

if sys.platform != "win32":
    import fcntl
    import termios

RUN = "ROCSTEADY_RUN"  # the variable that names the run in every process of it
TERMINATE_WAIT = 1.5  # seconds; with KILL_WAIT well below the 5 that are promised
KILL_WAIT = 2.0
LOOK_EVERY = 0.01  # between two looks at the tree
PR_SET_CHILD_SUBREAPER = 36
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class ProcessSnapshot(NamedTuple):
    state: str  # the letter in /proc/PID/stat
    parent: int
    start: int  # clock ticks since boot; with the pid it names a process for good


class ProcessSet(Protocol):
    """Processes that are ended together."""

    def members(self) -> dict[int, ProcessSnapshot]:
        """Look once at those that are alive."""


class Carriers:
    """Processes whose environment has an id of a run that begins so. Each is read once."""

    def __init__(self, run_id: str) -> None:
        self._entry = f"\0{RUN}={run_id}".encode()
        self._known: dict[tuple[int, int], bool] = {}  # by pid and start

    def include(self, pid: int, seen: ProcessSnapshot) -> bool:
        """Return whether it is one; a process that is not does not become one."""
        who = pid, seen.start
        if who not in self._known:
            if seen.state in "ZXD":  # it has no environment any more, or it may be locked
                return False
            self._known[who] = self._entry in b"\0" + _read(f"/proc/{pid}/environ")
        return self._known[who]

    def forget_others(self, everyone: Mapping[int, ProcessSnapshot]) -> None:
        self._known = {
            who: known
            for who, known in self._known.items()
            if who[0] in everyone and everyone[who[0]].start == who[1]
        }


class Family:
    """The processes of one run: descendants of the keeper, and bearers of its id."""

    def __init__(self, keeper: int, run_id: str) -> None:
        self.command = keeper  # the pid of the command itself, for those who outlive the keeper
        self._keeper = keeper
        self._carriers = Carriers(f"{run_id}\0")

    def members(self) -> dict[int, ProcessSnapshot]:
        """Look once. Zombies, the keeper and ourselves are left out."""
        return self.among(all_processes())

    def among(self, everyone: Mapping[int, ProcessSnapshot]) -> dict[int, ProcessSnapshot]:
        """Return those of them that are in a look at all processes."""
        chosen = descendants(self._keeper, everyone) | descendants(self.command, everyone)
        self._carriers.forget_others(everyone)
        for pid, seen in everyone.items():
            if pid not in chosen and self._carriers.include(pid, seen):
                chosen.add(pid)
        chosen -= {self._keeper, os.getpid()}
        return {
            pid: everyone[pid]
            for pid in sorted(chosen)
            if pid in everyone and is_alive(pid, everyone[pid])
        }

    def one(self, pid: int) -> dict[int, ProcessSnapshot]:
        """Look at one process, without the others if it is a child of the keeper."""
        seen = process_snapshot(pid)
        if seen is not None and seen.parent == self._keeper:
            return {pid: seen}
        return {each: seen for each, seen in self.members().items() if each == pid}


def send(members: Mapping[int, ProcessSnapshot], number: int) -> None:
    """Send a signal to each that is still the process that was seen."""
    for pid, seen in members.items():
        now = process_snapshot(pid)
        if now is None or now.start != seen.start:
            continue
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            if number in (signal.SIGINT, signal.SIGTERM) and now.state == "T":
                os.kill(pid, signal.SIGCONT)  # a stopped process cannot hear


def kill_all(family: ProcessSet, within: float) -> tuple[int, ...]:
    """Kill until two looks find nobody, or the time is over; give those that remain."""
    deadline, empty = time.monotonic() + within, 0
    while True:
        members = family.members()
        empty = 0 if members else empty + 1
        if empty == 2:  # noqa: PLR2004 - one look may miss a child born during it
            return ()
        if time.monotonic() >= deadline:
            return tuple(members)
        send(members, signal.SIGKILL)
        if members:
            time.sleep(LOOK_EVERY)


def process_snapshot(pid: int) -> ProcessSnapshot | None:
    fields = _read(f"/proc/{pid}/stat", at_once=True).rpartition(b") ")[2].split(None, 20)
    if len(fields) < 20:  # noqa: PLR2004 - the start time is the twentieth after the name
        return None
    return ProcessSnapshot(fields[0].decode(), int(fields[1]), int(fields[19]))


def all_processes() -> dict[int, ProcessSnapshot]:
    names = os.listdir("/proc")  # noqa: PTH208 - light modules only
    snapshots = {int(name): process_snapshot(int(name)) for name in names if name.isdigit()}
    return {pid: seen for pid, seen in snapshots.items() if seen is not None}


def descendants(ancestor: int, everyone: Mapping[int, ProcessSnapshot]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, seen in everyone.items():
        children.setdefault(seen.parent, []).append(pid)
    found: set[int] = set()
    ahead = [ancestor]
    while ahead:
        young = children.get(ahead.pop(), [])
        found.update(young)
        ahead.extend(young)
    return found


def name_of(pid: int) -> str:
    return _read(f"/proc/{pid}/comm").decode(errors="replace").strip()


def is_alive(pid: int, seen: ProcessSnapshot) -> bool:
    """Whether it is no zombie; one whose first thread ended may have others that run."""
    if seen.state not in "ZX":
        return True
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208 - light modules only
    return False


def _read(path: str, *, at_once: bool = False) -> bytes:
    """Read a file; ``at_once`` one that comes whole, as a line of /proc does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    pieces = []
    try:
        while piece := os.read(descriptor, 65536):
            pieces.append(piece)
            if at_once:
                break
    except OSError:  # it ended while we read
        return b""
    finally:
        os.close(descriptor)
    return b"".join(pieces)


# From here on: what only the keeper itself does.
class KeeperOrder(NamedTuple):
    command: list[str]
    folder: str
    environment: dict[str, str]


def read_order(control: int) -> KeeperOrder:
    """Read ``LENGTH newline``, then as many bytes: count, command, folder, variables, by NUL."""
    head = body = b""
    while not head.endswith(b"\n"):
        head += os.read(control, 1) or sys.exit("the supervisor is gone")
    while len(body) < int(head):
        body += os.read(control, int(head) - len(body)) or sys.exit("the supervisor is gone")
    count, *fields = (os.fsdecode(field) for field in body.split(b"\0"))
    command, folder, *variables = fields[: int(count)], *fields[int(count) :]
    return KeeperOrder(command, folder, dict(item.split("=", 1) for item in variables))


def become(order: KeeperOrder, ignored: Iterable[int], failed: int) -> NoReturn:
    """Turn this forked process into the command; what goes wrong is written to ``failed``."""
    what = "command"
    try:
        os.setsid()
        for stream in [stream for stream in (0, 1, 2) if os.isatty(stream)][:1]:
            fcntl.ioctl(stream, termios.TIOCSCTTY, 0)
        for number in (*DEAF_TO, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        what = "folder"
        os.chdir(order.folder)
        what = "command"
        os.execvpe(order.command[0], order.command, order.environment)  # noqa: S606 - our purpose
    except OSError as error:
        os.write(failed, b'{"errno": %d, "what": "%s"}\n' % (error.errno or 0, what.encode()))
    finally:
        os._exit(127)


def start(order: KeeperOrder, ignored: Iterable[int], status: int) -> int:
    reader, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(order, ignored, failed)
    os.close(failed)
    problem = os.read(reader, 4096)  # ends when exec succeeds
    os.close(reader)
    with suppress(BrokenPipeError):  # the supervisor is gone, which CONTROL will say
        os.write(status, problem or b'{"pid": %d}\n' % pid)
    return 0 if problem else pid


def keep(command: int, control: int, status: int) -> None:
    """Reap whoever ends and report the command's end, until the supervisor lets go."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        reap(command, status)
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if control in ready and not os.read(control, 4096):
            return


def reap(command: int, status: int) -> bool:
    """Collect all that ended; say so if the command is among them. Tell whether a child is left.

    What a child of ours orphans becomes our child: without one, nobody descends from us.
    """
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == command:
            code = os.waitstatus_to_exitcode(code)
            report = b'{"code": %d}\n' % code if code >= 0 else b'{"signal": %d}\n' % -code
            with suppress(BrokenPipeError):  # the supervisor is gone, which CONTROL will say
                os.write(status, report)


def release_streams(control: int, status: int) -> None:
    """Hold no stream, file or folder that the command was given."""
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    low, high = sorted((control, status))
    for first, last in ((3, low), (low + 1, high), (high + 1, 1 << 20)):
        os.closerange(first, last)
    os.chdir("/")


def end(family: ProcessSet, *, alone: bool = False) -> None:
    """Ask everyone to end, wait a little, then kill. Zombies of ours are reaped by our own end."""
    members = family.members()
    if not members and alone:
        return
    send(members, signal.SIGTERM)
    deadline = time.monotonic() + TERMINATE_WAIT
    while family.members() and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)
    kill_all(family, KILL_WAIT)


def main() -> None:
    control, status = int(sys.argv[1]), int(sys.argv[2])
    family = Family(os.getpid(), run_id=sys.argv[3])
    signals = (*DEAF_TO, signal.SIGCHLD)
    ignored = [number for number in signals if signal.getsignal(number) == signal.SIG_IGN]
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    for descriptor in (control, status):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - takes no keyword
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = start(read_order(control), ignored, status)
    release_streams(control, status)
    if command:
        keep(command, control, status)
        end(family, alone=not reap(command, status))


if __name__ == "__main__":
    main()
