"""What is said of an attempt; ``judgment.py`` decides."""

from __future__ import annotations

from datetime import timedelta

from rocsteady.hangs.proof.wait_set import WaitSet
from rocsteady.model import Blame, RankRecord, RunState, Value


class Verdict(Value, frozen=True, kw_only=True):
    condition: RunState
    why: str  # one clause, for a person: "no step for 9 s (at most 0.9 s in this phase so far)"
    quiet: float  # seconds since the last sign of progress
    starting: bool = False  # it has made no step yet
    over: bool = False  # the script's own code is done, and its process has not exited
    examine: bool = False  # look closer: take stacks now
    place: str = ""  # where it is stuck: "dataset.py:88 __getitem__", if that is known
    culprit: int | None = None  # the process that does not move, if it is not the only trainer
    limit: float | None = None  # seconds after the last progress at which this becomes hung
    waits: WaitSet | None = None  # who waits for whom, as the last snapshots showed it
    moves: bool = False  # something that training depends on did, between the last two snapshots
    apart: bool = False  # it holds only if the ranks of other hosts are stuck too
    blame: Blame | None = None  # which rank holds up the others; None: there are no two to compare
    ranks: tuple[RankRecord, ...] = ()  # what each rank of this machine does


class Patience(Value, frozen=True, kw_only=True):
    """How long is too long. Every figure has its reason in docs/explanation-hangs.md."""

    suspect_after: timedelta = timedelta(seconds=4)  # least quiet before stacks are taken
    steady_suspect_after: timedelta = timedelta(seconds=1.2)  # the same, at a steady pace
    suspect_factor: float = 1.5  # times the longest usual stay in this phase
    suspect_at_most: timedelta = timedelta(seconds=60)  # looking is cheap: never later
    stuck_after: timedelta = timedelta(seconds=9)  # least quiet, when all waited for is stuck
    steady_stuck_after: timedelta = timedelta(seconds=4.5)  # the same, at a steady pace
    steady_factor: float = 50.0  # times the mean step: no pace is steady enough for less
    stuck_factor: float = 2.0  # times the longest usual stay
    locked_factor: float = 4.0  # times the longest that all seemed stuck, and yet went on
    stuck_at_most: timedelta = timedelta(minutes=2)  # of stuck_factor; proof needs no more
    exit_after: timedelta = timedelta(seconds=20)  # the same once the script's own code is done
    seldom_after: timedelta = timedelta(seconds=60)  # the same as stuck_after in seldom phases
    steady_steps: int = 10  # fewer have not shown a pace: seldom_after
    samples: int = 3  # snapshots that must agree
    sample_span: timedelta = timedelta(seconds=3)  # between the first and the last of them
    sure_after: timedelta = timedelta(seconds=35)  # in a known device wait, with a second sign
    spin_after: timedelta = timedelta(minutes=5)  # the same without one
    spin_factor: float = 10.0  # times the longest such wait that ended
    signal_after: timedelta = timedelta(minutes=5)  # a closed set, with a handler such as SIGUSR1's
    start_after: timedelta = timedelta(seconds=100)  # before the first step, with nothing moving
    long_after: timedelta = timedelta(minutes=30)  # when it cannot be told
    works_after: timedelta = timedelta(hours=3)  # when something still moves
    long_factor: float = 10.0  # times the longest stay ever, for the two above
    say_slow_after: timedelta = timedelta(seconds=30)
    hang_after: timedelta | None = None  # the user's own limit, in place of all unproven ones
    tick_gap: timedelta = timedelta(seconds=5)  # we ourselves did not run: forget all suspicion
