"""A small simulator of a training run: ticks at 5 Hz, and snapshots when the pulse asks for them.

A run is a list of segments. In one kind steps are made; in the other, time passes while the tree
of processes snapshots as a function of time says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

import msgspec

from rocsteady.doctor.knowledge.waits import WaitKnowledge, load_waits
from rocsteady.hangs.judgment.judgment import Pulse, begin, judge
from rocsteady.hangs.judgment.verdict import Patience, Verdict
from rocsteady.hangs.values import (
    Blocked,
    Heartbeat,
    Output,
    ProcessSeen,
    Snapshot,
    ThreadSeen,
    Tick,
    Wait,
    WayOut,
)
from rocsteady.model import RunState
from rocsteady.store.values import PhaseHistory

TICK = 0.2
LOOK_TAKES = 0.3
BUCKETS = 44
STEP = 0.02
TRAINER, WORKER = 100, 200
LOADER = "site-packages/torch/utils/data/dataloader.py"
WORKER_LOOP = "_worker_loop (site-packages/torch/utils/data/_utils/worker.py:349)"
TORCH = "/venv/lib/python3.12/site-packages/torch"
STATES = {Wait.NOTHING: "R", Wait.DISK: "D", Wait.STOPPED: "T", Wait.TRACED: "t"}

Tree = Callable[[float], tuple[ProcessSeen, ...]]
known: Callable[[], WaitKnowledge] = cache(load_waits)


def thread(
    tid: int, wait: Wait, *frames: str, waits_for: object = (), **fields: object
) -> ThreadSeen:
    """One thread; frames innermost first, "native" and the rest by name."""
    if waits_for:
        fields["blocked"] = call_of(wait, frames, msgspec.convert(waits_for, tuple[int, ...]))
    given: dict[str, object] = {
        "tid": tid,
        "name": "python",
        "state": STATES.get(wait, "S"),
        "cpu": 1.0,
        "wait": wait,
        "frames": frames or None,
    }
    return msgspec.convert(given | fields, ThreadSeen)


def process(pid: int, *threads: ThreadSeen, **fields: object) -> ProcessSeen:
    """One process, a Python program and a child of the trainer unless said otherwise."""
    given: dict[str, object] = {
        "pid": pid,
        "parent": 1 if pid == TRAINER else TRAINER,
        "name": "python",
        "python": True,
        "read_bytes": 0,
        "written_bytes": 0,
        "rss_bytes": 1 << 30,
        "threads": tuple(explained(pid, each) for each in threads),
        "handlers": (2, 17),
    }
    return msgspec.convert(given | fields, ProcessSeen)


def explained(pid: int, one: ThreadSeen) -> ThreadSeen:
    """Add what its system call would say, unless that is given."""
    blocked = one.blocked or call_of(one.wait, one.frames or (), (pid,), one.tid)
    return msgspec.structs.replace(one, blocked=blocked)


def call_of(
    wait: Wait, frames: tuple[str, ...], pids: tuple[int, ...], tid: int = 0
) -> Blocked | None:
    """Return what the decoder makes of such a wait."""
    calls = {
        Wait.LOCK: Blocked(on=f"lock {tid:#x}", pids=pids),
        Wait.TREE: Blocked(
            on="pipe 7", left=5.0 if known().loop(frames, ()) else None, whole=True, pids=pids
        ),
        Wait.CHILD: Blocked(on="the end of a child", pids=pids),
        Wait.SLEEP: Blocked(on="time", left=0.0),
        Wait.WORLD: Blocked(on="socket 7", way_out=WayOut.DESCRIPTOR, who="somebody holds it"),
    }
    return calls.get(wait)


def openmp(pid: int) -> tuple[ThreadSeen, ...]:
    """Threads that every torch process has beside its main one."""
    return tuple(thread(pid + offset, Wait.LOCK) for offset in (1, 2))


def fetching(*, pid: int = TRAINER, waits_for: Iterable[int] = (WORKER,)) -> ThreadSeen:
    """Give the main thread while it waits for its loader's workers."""
    frames = ("wait (/usr/lib/python3.12/selectors.py:415)", f"_try_get_data ({LOADER}:1131)")
    return thread(pid, Wait.TREE, *frames, "main (/home/u/train.py:40)", waits_for=tuple(waits_for))


@dataclass
class Page:
    """What one training process tells of itself."""

    pid: int = TRAINER
    rank: int | None = None
    world: int | None = None
    step: int = 0
    beats: int = 0
    phase: str = "starting"
    since: float = 0.0
    last_step: float | None = None
    ended: bool = False
    longest: dict[str, float] = field(default_factory=dict)
    histogram: dict[str, list[int]] = field(default_factory=dict)

    def stay(self, phase: str, seconds: float, *, times: int = 1) -> None:
        """Count stays in a phase."""
        self.longest[phase] = max(self.longest.get(phase, 0.0), seconds)
        bucket = min(int(seconds * 1e9).bit_length(), BUCKETS - 1)
        self.histogram.setdefault(phase, [0] * BUCKETS)[bucket] += times

    def stepped(self, at: float, seconds: float, times: int) -> None:
        """Count steps."""
        self.step += times
        self.beats += 5 * times
        self.phase, self.since, self.last_step = "compute", at, at
        for phase in ("data", "compute", "backward", "optimizer"):
            self.stay(phase, seconds / 4, times=times)

    def heartbeat(self) -> Heartbeat:
        """Tell it as the reader of the page would."""
        return Heartbeat(
            pid=self.pid,
            rank=self.rank,
            world=self.world,
            thread=self.pid,
            step=self.step,
            beats=self.beats,
            phase=self.phase,
            since=self.since,
            last_step=self.last_step,
            ended=self.ended,
            raised=False,
            total=None,
            seconds_in={},
            longest_in=dict(self.longest),
            histogram={phase: tuple(counts) for phase, counts in self.histogram.items()},
        )


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A time of steps at one pace."""

    seconds: float
    step: float = STEP


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """A time without steps."""

    seconds: float
    tree: Tree
    phase: str = ""  # "" stays in the one it was in
    beats_every: float = 0.0  # signs of progress that are not steps
    counts_every: float = 0.0  # changes of a counter in the output
    stacks: bool = True
    gpu_signs: tuple[str, ...] = ()
    asleep: float = 0.0  # the machine, at the end of it
    away: float = 0.0  # we ourselves, at the end of it
    tick: float = TICK


@dataclass(frozen=True)
class Said:
    """A verdict, and when: seconds since the run began, and since its last step."""

    at: float
    verdict: Verdict

    @property
    def condition(self) -> RunState:
        return self.verdict.condition


class Simulation:
    """One run, watched."""

    def __init__(
        self,
        pages: Sequence[Page] | None = None,
        patience: Patience | None = None,
        learned: PhaseHistory | None = None,
        stride: float = TICK,
    ) -> None:
        self.now = 1000.0
        self.asleep = 0.0
        self.pages = [Page(since=self.now)] if pages is None else list(pages)
        self.patience = patience or Patience()
        self.stride = stride
        self.counters = 0
        self.pulse: Pulse = begin(self.now, self.now, learned)
        self.snapshots: tuple[Snapshot, ...] = ()
        self.ready: float | None = None
        self.said: list[Said] = []

    def run(self, *segments: Steps | Quiet) -> list[Said]:
        """Go through all segments; return each verdict whose word differs from the one before."""
        for segment in segments:
            if isinstance(segment, Steps):
                self.make_steps(segment)
            else:
                self.be_quiet(segment)
        return self.changes()

    def changes(self) -> list[Said]:
        """Return the verdicts at which the word changed."""
        words = [None, *(said.condition for said in self.said)]
        return [
            said
            for said, before in zip(self.said, words, strict=False)
            if said.condition is not before
        ]

    def make_steps(self, segment: Steps) -> None:
        until = self.now + segment.seconds
        while self.now < until - 1e-9:
            passed = max(self.stride, segment.step)
            self.now += passed
            for page in self.pages:
                page.stepped(self.now, segment.step, max(1, round(passed / segment.step)))
            self.tick(None)

    def be_quiet(self, segment: Quiet) -> None:
        began = self.now
        beaten = counted = began
        if segment.phase:
            for page in self.pages:
                page.phase, page.since = segment.phase, began
        while self.now < began + segment.seconds - 1e-9:
            self.now += segment.tick
            if segment.beats_every and self.now - beaten >= segment.beats_every:
                beaten = self.now
                for page in self.pages:
                    page.beats += 1
            if segment.counts_every and self.now - counted >= segment.counts_every:
                counted, self.counters = self.now, self.counters + 1
            self.tick(segment)
        self.now += segment.away
        self.asleep += segment.asleep
        for page in self.pages:
            page.stay(page.phase, segment.seconds)

    def tick(self, segment: Quiet | None) -> None:
        """Judge once; take the snapshot that was asked for when it is due."""
        if segment and self.ready is not None and self.now >= self.ready:
            processes = segment.tree(self.now)
            snapshot = Snapshot(
                at=self.now,
                processes=processes,
                stacks=segment.stacks,
                gpu_signs=segment.gpu_signs,
            )
            self.snapshots, self.ready = (*self.snapshots, snapshot), None
        tick = Tick(
            at=self.now,
            boot=self.now + self.asleep,
            heartbeats=tuple(page.heartbeat() for page in self.pages),
            output=Output(counters=self.counters),
            alive=True,
        )
        self.pulse, verdict = judge(self.pulse, tick, self.snapshots, self.patience, known())
        if verdict.quiet == 0:
            self.snapshots, self.ready = (), None
        if verdict.examine and self.ready is None:
            self.ready = self.now + LOOK_TAKES
        self.said.append(Said(self.now, verdict))


def first(said: Iterable[Said], condition: RunState) -> Said | None:
    """Return the first verdict with this word."""
    return next((one for one in said if one.condition is condition), None)
