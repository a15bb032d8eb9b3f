"""Tasks that srun, mpirun or flux started on one host: one of them leads, the others obey it.

Each task is a rocsteady. Each starts its own rank, since the scheduler has bound the task to its
processors and GPUs; that of local rank 0 says when, and with which variables.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from rocsteady.errors import LauncherError
from rocsteady.exit_codes import RETRY
from rocsteady.model import Value
from rocsteady.system.child_end import Exit, exit_as
from rocsteady.typed_values import convert

MEET_WITHIN = 600.0  # seconds; Python starts late where a thousand tasks read it from one disk
LOOK_EVERY = 0.2  # seconds
END_WITHIN = 5.0  # seconds for a rank whose leader is gone
LONGEST_ABOVE = 60  # characters; the whole may have 107
NOT_STARTED = 127  # as a shell says it
HEARD_BYTES = 65536
MAX_BYTES = 4 * 1024 * 1024  # of one message
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class Task(NamedTuple):
    """One of the tasks that a launcher started."""

    job: str  # which launch: tasks of another must not meet these
    rank: int
    ranks: int
    local: int  # rank on this host
    local_ranks: int

    @property
    def several_hosts(self) -> bool:
        return self.ranks > self.local_ranks


class _Names(NamedTuple):
    rank: str
    ranks: str
    local: str
    local_ranks: str


# The innermost launcher comes first: mpirun starts its helpers by srun.
OPEN_MPI = _Names(
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)
HYDRA = _Names("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")  # of MPICH
SLURM = _Names("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
FLUX = _Names("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_NNODES")
JOBS = {
    OPEN_MPI: ("PMIX_NAMESPACE",),
    SLURM: ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    FLUX: ("FLUX_JOB_ID",),
}


def task_here(environment: Mapping[str, str]) -> Task | None:
    """Return the task that this process is; None: it is alone on its host."""
    for names in (OPEN_MPI, HYDRA, SLURM, FLUX):
        if any(name not in environment for name in names):
            continue
        rank, ranks, local = (int(environment[name]) for name in names[:3])
        local_ranks = _local_ranks(environment[names.local_ranks], names, environment, ranks)
        parts = [environment.get(name, "") for name in JOBS.get(names, ())]
        job = ".".join(parts) if any(parts) else f"below {os.getppid()}"
        task = Task(job, rank, ranks, local, local_ranks)
        return task if local_ranks > 1 else None
    return None


def _local_ranks(text: str, names: _Names, environment: Mapping[str, str], ranks: int) -> int:
    if names is FLUX:  # it tells the hosts, over which it spreads the tasks evenly
        return -(-ranks // int(text))
    if names is not SLURM:
        return int(text)
    hosts: list[int] = []  # "8(x2),4" is 8, 8, 4
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        hosts += [int(number)] * int(times or 1)
    return hosts[min(int(environment.get("SLURM_NODEID", "0")), len(hosts) - 1)]


def meeting_place(task: Task) -> Path:
    """Return the socket of a host's tasks, in a folder that only this account can enter."""
    name = hashlib.sha256(f"{task.job} {socket.gethostname()}".encode()).hexdigest()[:16]
    # That of a login node is often named on nodes that have none, and a socket's path is short.
    places = (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir())
    above = (each for each in places if len(each) < LONGEST_ABOVE and os.access(each, os.W_OK))
    folder = Path(next(above, "/tmp")) / f"rocsteady-{os.getuid()}-{name}"  # noqa: S108 - mode 0700
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    seen = folder.lstat()
    is_ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid()
    if not is_ours or stat.S_IMODE(seen.st_mode) != 0o700:  # noqa: PLR2004 - as it was made
        raise LauncherError(f"{folder} is somebody else's; the tasks of this job cannot meet")
    return folder / "leader"


class Order(Value, frozen=True, kw_only=True):
    """What the leader says: start the rank, ask it to end, or end yourself."""

    attempt: int = 0
    command: tuple[str, ...] = ()
    folder: str = ""
    # Those that a rank gets besides its task's own; None: that it does not get.
    variables: dict[str, str | None] = msgspec.field(default_factory=dict)
    stop: bool = False  # send SIGTERM to the rank
    end: int | None = None  # with this code


class Report(Value, frozen=True, kw_only=True):
    """What a task says: who it is, and later how its rank ended."""

    rank: int
    command: tuple[str, ...] = ()  # as it was typed for this task
    exit: Exit | None = None
    attempt: int = 0  # that the rank was of


M = TypeVar("M", Order, Report)


class Conversation:
    """Messages of one connection: a line each."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.streams: list[int] = []  # that came along
        self._heard = b""

    def tell(self, message: Order | Report, streams: Sequence[int] = ()) -> None:
        """Send a message, and streams that the other side may use from then on."""
        text = json.dumps(msgspec.to_builtins(message))  # its names may not be UTF-8
        with contextlib.suppress(OSError):  # it is gone, which is seen when it is listened to
            if streams:
                socket.send_fds(self.connection, [b"\n"], streams)
            self.connection.sendall(text.encode() + b"\n")

    def heard(self, kind: type[M]) -> list[M] | None:
        """Return what has come; None: the other side is gone."""
        try:
            heard, streams, _, _ = socket.recv_fds(self.connection, HEARD_BYTES, 2)
        except ConnectionError:
            return None
        self.streams += streams
        if not heard or len(self._heard) > MAX_BYTES:
            return None
        *lines, self._heard = (self._heard + heard).split(b"\n")
        return [convert(json.loads(line), kind) for line in lines if line]


def follow(task: Task, command: Sequence[str]) -> int:
    """Start this task's rank whenever the leader says so; return the code to end with."""
    rank = Rank(task.rank)
    for number in IGNORED:  # the scheduler tells the leader too, which ends all ranks in order
        signal.signal(number, lambda _number, _frame: None)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _frame: rank.send(number))
    leader = Conversation(_connected(task))
    leader.tell(Report(rank=task.rank, command=tuple(command)))
    try:
        while (orders := rank.news(leader)) is not None:
            for order in orders:
                if order.end is not None:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until Python has ended
                    return order.end
                if order.stop:
                    rank.send(signal.SIGTERM)
                elif not rank.start(order, leader):
                    leader.tell(rank.report(Exit(code=NOT_STARTED)))
            if (how := rank.exit()) is not None:
                leader.tell(rank.report(how))
        leave(task)  # the leader was killed
        return RETRY
    finally:
        rank.end()
        leader.connection.close()


class Rank:
    """The process of this task, if one runs."""

    def __init__(self, number: int) -> None:
        self._number, self._attempt = number, 0
        self._process: subprocess.Popen[bytes] | None = None

    def news(self, leader: Conversation) -> list[Order] | None:
        """Wait for orders or for the end of the rank; None: the leader is gone."""
        ended = [] if self._process is None else [os.pidfd_open(self._process.pid)]
        heard = leader.connection.fileno()
        ready = select.select([heard, *ended], [], [])[0]
        for descriptor in ended:
            os.close(descriptor)
        return leader.heard(Order) if heard in ready else []

    def start(self, order: Order, leader: Conversation) -> bool:
        """Start it with the streams that came along; False: there is no such command."""
        self._attempt = order.attempt
        changed = {name: text for name, text in order.variables.items() if text is not None}
        environment = {
            name: text
            for name, text in {**os.environ, **changed}.items()
            if order.variables.get(name, "") is not None
        }
        streams, leader.streams = leader.streams, []
        out, err = streams[-2:]
        try:
            self._process = subprocess.Popen(
                order.command,
                cwd=order.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            os.write(err, f"rocsteady: {order.command[0]}: {error.strerror}\n".encode())
            return False
        finally:
            for stream in streams:
                os.close(stream)
        return True

    def exit(self) -> Exit | None:
        """Return how it has ended, once."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        self._process = None
        return exit_as(code)

    def report(self, how: Exit) -> Report:
        return Report(rank=self._number, exit=how, attempt=self._attempt)

    def send(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def end(self) -> None:
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_WITHIN)


def _connected(task: Task) -> socket.socket:
    """Return the connection to the leader, which may start later than this task."""
    place, deadline = meeting_place(task), time.monotonic() + MEET_WITHIN
    while time.monotonic() < deadline:
        connection = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            connection.connect(os.fspath(place))
            return connection
        connection.close()
        time.sleep(LOOK_EVERY)
    raise LauncherError(f"the first task of this host did not start within {MEET_WITHIN:.0f} s")


def listening(task: Task) -> socket.socket:
    """Return where the leader hears the other tasks."""
    place = meeting_place(task)
    with contextlib.suppress(FileNotFoundError):
        place.unlink()  # of a leader that was killed
    here = socket.socket(socket.AF_UNIX)
    here.bind(os.fspath(place))
    here.listen(task.local_ranks)
    return here


def leave(task: Task) -> None:
    """Remove the meeting place."""
    place = meeting_place(task)
    with contextlib.suppress(OSError):
        place.unlink()
        place.parent.rmdir()
