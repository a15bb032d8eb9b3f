"""What was seen of an attempt: its heartbeats, its processes and threads, what they wait for."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from rocsteady.model import Value


class Heartbeat(Value, frozen=True, kw_only=True):
    """What one training process told of itself. Times are seconds of the monotonic clock."""

    pid: int
    rank: int | None
    world: int | None
    thread: int  # native id of the thread that trains
    made: float = 0.0  # when this process began to tell
    step: int
    beats: int
    phase: str
    since: float  # when this phase began
    last_step: float | None
    ended: bool  # the script's own code is done
    raised: bool  # it ended by an exception
    interrupted: bool = False  # SIGINT has a handler of the script's own
    total: int | None  # steps in all
    batches: int = 0  # in an epoch, as the loader says; 0: not known
    base: int = 0  # the step that it went on from, where it told so
    save_failed: int | None = None  # step of the last checkpoint, if it could not be saved
    saved: float | None = None  # when it last saved a checkpoint
    saved_step: int = 0  # the step by then, without base
    not_finite: int = 0  # the step since which the loss was not finite, without base; 0: never
    finite: int = 0  # the step in which it was so again, the same
    seconds_in: dict[str, float]
    longest_in: dict[str, float]
    histogram: dict[str, tuple[int, ...]]  # stays by bit length of their nanoseconds


class Wait(Enum):
    """What a thread waits for, as far as its system call tells."""

    NOTHING = "runs"  # on a processor, or ready to be
    LOCK = "a lock"  # futex, semaphore; also one that is asked for again every few seconds
    TREE = "a pipe or socket inside the tree"
    CHILD = "a child's end"
    WORLD = "a file, a terminal or the network"  # also a frozen cgroup, and whatever is unsure
    SLEEP = "a timer"  # also a lock that is given up after a long time
    SIGNAL = "a signal"  # pause()
    DEVICE = "a GPU or another device"  # an ioctl, as ROCm waits for the end of a kernel
    DISK = "the disk or a driver"  # uninterruptible
    STOPPED = "to be continued"  # state T
    TRACED = "a debugger"  # state t
    UNKNOWN = "something that the kernel does not show"


class WayOut(Enum):
    """What could end a wait other than the threads that take part in it."""

    TIMEOUT = "timeout"
    TIMER = "timer"
    SIGNAL = "signal handler"
    DESCRIPTOR = "outside descriptor"  # a file, the network, or a pipe that an outsider holds
    MEMORY = "shared memory"  # that a process outside the tree has mapped, or may map
    FILE_LOCK = "file lock"
    PROCESS = "outside process"  # a child that cannot be seen, a rank of another machine
    NETWORK = "network"  # data that is being sent again, as after a cut of a link
    SYSTEM = "system-wide object"  # a semaphore that any process may change
    DEVICE = "device"  # a GPU that may yet finish
    RUNS = "runs"
    MOVED = "moved"  # between two snapshots
    UNREAD = "unread"  # a stack that could not be read, this time
    UNKNOWN = "unknown"  # whatever is not understood


GIL = "the GIL"  # what a thread waits for that Python lets ask for it every 5 ms


class Blocked(Value, frozen=True, kw_only=True):
    """What the system call of a blocked thread says about how its wait can end."""

    on: str  # the object waited for; the same text in every snapshot: "lock 0x7f2c", "pipe 4711"
    left: float | None = None  # seconds until the call gives up; None: it never does
    whole: bool = False  # left is the whole duration of the call, not what remains of it
    pids: tuple[int, ...] = ()  # processes whose threads could end the wait; its own may be one
    holds_both: bool = False  # its own is one only because it holds the other end as well
    way_out: WayOut | None = None  # what else could end it, if there is anything
    who: str = ""  # a clause about that


class ThreadSeen(Value, frozen=True, kw_only=True):
    tid: int
    name: str
    state: str  # as in /proc: R, S, D, T, t, Z
    cpu: float  # seconds used so far
    switches: int = 0  # how often it was put on a processor so far; 0 where that is not told
    ran: int = 0  # for how many nanoseconds, to the last time that it was taken off one
    start: int = 0  # ticks after boot
    wait: Wait
    frames: tuple[str, ...] | None = None  # "function (file:line)", innermost first; None: not had
    native: tuple[str, ...] | None = None  # innermost native functions; None: not had
    blocked: Blocked | None = None  # None: it runs, or nothing is known of how its wait can end


class ProcessSeen(Value, frozen=True, kw_only=True):
    pid: int
    parent: int
    name: str  # of its command
    python: bool
    read_bytes: int  # all reads, also from cache and pipes
    written_bytes: int
    rss_bytes: int  # in memory and its own: pages of files are left out
    threads: tuple[ThreadSeen, ...]
    handlers: tuple[int, ...] | None = None  # signals with a handler; None: not known
    timers: int = 0  # POSIX timers
    unanswered: int = 0  # TCP connections whose other end does not answer; the kernel tries again


class Snapshot(Value, frozen=True, kw_only=True):
    """The whole tree at one moment."""

    at: float  # seconds of the monotonic clock
    processes: tuple[ProcessSeen, ...]
    stacks: bool  # whether stacks could be had at all
    why_no_stacks: str = ""
    gpu_signs: tuple[str, ...] = ()  # that a GPU of these processes is stuck or idle; clauses


class Output(Value, frozen=True, kw_only=True):
    """What the script printed so far, as counts."""

    bytes: int = 0
    lines: int = 0
    counters: int = 0  # how often a number that counts work changed; a redrawn clock does not
    at: float = 0.0  # when that last changed


class Tick(Value, frozen=True, kw_only=True):
    """Everything that is known cheaply, several times a second."""

    at: float  # seconds of the monotonic clock
    boot: float  # seconds of the clock that goes on while the machine sleeps
    heartbeats: tuple[Heartbeat, ...]
    output: Output
    alive: bool  # the command has not ended
    looking: float = 0.0  # seconds of processor time that the last look took


# Which of the processes that have a heartbeat page train, and whether all ranks are here.


def trainers(heartbeats: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
    """Return the heartbeats of training processes: of each rank, those that have beaten.

    Excludes launchers and finished scripts. If all scripts are finished, those whose process has
    not exited take their place.
    """
    going = [beat for beat in heartbeats if not beat.ended]
    beating = [beat for beat in going if beat.beats or beat.step]
    ranks = {beat.rank for beat in beating}
    silent = [beat for beat in going if beat.rank is not None and beat.rank not in ranks]
    return tuple(beating + silent or going or heartbeats)


def finished(heartbeats: tuple[Heartbeat, ...]) -> bool:
    """Whether the code of all that trained is done; a launcher may still wait for them."""
    trained = [beat for beat in heartbeats if beat.beats or beat.step or beat.rank is not None]
    return bool(heartbeats) and all(beat.ended for beat in trained or heartbeats)


def ranks_elsewhere(heartbeats: tuple[Heartbeat, ...]) -> bool:
    """Whether ranks train that have no page here, such as those of another machine."""
    ranks = {beat.rank for beat in heartbeats if beat.rank is not None}
    return any((beat.world or 1) > max(1, len(ranks)) for beat in heartbeats)


def world_size(heartbeats: Iterable[Heartbeat]) -> int:
    """Return how many ranks there are on all hosts, as they tell; 0: not known."""
    return max((beat.world or 0 for beat in heartbeats), default=0)
