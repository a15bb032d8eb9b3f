"""A plan: the options to get a job done, each with what it rests on, as values.

The planner makes it, the report lays it out, and a run follows it.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from rocsteady.model import Risk, Strategy, Value
from rocsteady.run.options import StopRule

PLAN_VERSION = 1
DRILL_STEP = 50  # where no trial saw the script save
CERTAIN = 0.995  # no forecast is surer than this


class Basis(Enum):
    """What the figures of an option rest on."""

    TRIAL = "trial"  # it ran here, just now
    ESTIMATE = "estimate"  # it cannot run here
    NOT_TRIED = "not tried"  # it could run here, and nothing is known of it
    RULED_OUT = "ruled out"


class Pace(Value, frozen=True, kw_only=True):
    """How fast a job goes, as a trial measured it."""

    steps: int  # that were counted, those of the warm-up not among them
    seconds: float  # that they took
    rate: float  # steps a second
    low: float  # the true one lies between, 90 %
    high: float
    starting: float  # seconds from the start of the process until the pace was even
    slowed_by: dict[str, float] = msgspec.field(default_factory=dict)
    # seconds of a step, by phase: data, compute, backward, optimizer, checkpoint, evaluate
    memory: int | None = None  # bytes of host memory at most, all its processes together
    gpu_busy: float | None = None  # percent of the time, of the GPU used most; None: not told
    gpu_memory: int | None = None  # bytes of its memory that were used, at most
    parameters: int | None = None  # of the model, where they were counted


class Finish(Value, frozen=True, kw_only=True):
    """When an option would be done, in seconds from now."""

    seconds: float  # as likely before as after
    early: float  # the end lies between, 90 %
    late: float
    in_time: float | None = None  # chance to meet the deadline; None: there is none
    failures: float = 0.0  # that are expected on the way
    lost: float = 0.0  # share of the time that failures and what they cost take


class Price(Value, frozen=True, kw_only=True):
    """What an hour costs, who says so and when."""

    dollars: float  # an hour
    as_of: str  # 2026-08-22
    source: str  # an address
    old: bool = False  # more than 14 days, by the day of the plan


class Option(Value, frozen=True, kw_only=True):
    number: int = 0  # as it is typed, `run --plan 2`; 0: it is ruled out
    id: str  # "gpu", "gpu+loader-inline", "cpu", "variant-small", "wsl2", "cloud-rtx-4090"
    title: str  # "GPU, no loader processes"
    basis: Basis
    strategy: Strategy = Strategy()
    variant: str = ""  # of the job file
    command: tuple[str, ...] = ()  # of its own, where a variant has other arguments
    pace: Pace | None = None
    failures: int = 0  # that were seen here, in trials and in runs
    failed_steps: int = 0  # steps in which these were seen
    kinds: tuple[str, ...] = ()  # of the failures
    resumes: bool = True  # False: no way to resume is known, so a failure costs all that was done
    finish: Finish | None = None
    setup: tuple[float, float] | None = None  # minutes of work by hand, at least and at most
    cost: tuple[float, float] | None = None  # dollars, at least and at most
    price: Price | None = None
    risk: Risk = Risk.LOW
    cut_short: bool = False  # its trial ended before a step was seen or a speed was known
    rests_on: tuple[str, ...] = ()  # sentences: trials, findings, observations, figures
    sources: tuple[str, ...] = ()
    changes: str = ""  # what is other in the end, or must be changed in the script first
    do: str = ""  # the command that does it; "" if there is none
    steps: tuple[str, ...] = ()  # commands to type first; a run of a tried option does them itself

    def is_same_job(self, other: Option) -> bool:
        """Whether it trains the same model, with the same numbers or with the script's own."""
        same_model = (self.variant, self.command) == (other.variant, other.command)
        return same_model and self.strategy.precision in (None, other.strategy.precision)


class ChainLink(Value, frozen=True, kw_only=True):
    option: int  # its number
    stop: StopRule | None = None  # when the run goes on to the next one; None: the last
    by_hand: bool = False  # a person must set it up; no run goes on to it
    begin_by: float | None = None  # seconds from now, after the link before; later it may be late


class Chain(Value, frozen=True, kw_only=True):
    """Options in sequence, with rules for when a run leaves each."""

    links: tuple[ChainLink, ...]
    finish: Finish


class Limit(Value, frozen=True, kw_only=True):
    """What holds the training up."""

    part: str  # "data", "own code", "simulation", "compute", "checkpoint", "evaluate", ...
    share: float  # of the time of a step
    where: str = ""  # the script's own function that is seen most, with file and line
    best: str = ""  # what would help most
    gain: float = 1.0  # how many times as fast it would be then, by the phases measured


class Plan(Value, frozen=True, kw_only=True):
    """The options to get a job done, the best first."""

    version: int = PLAN_VERSION
    rocsteady: str  # the version that made it
    made: float  # by the wall clock
    command: tuple[str, ...]
    folder: str
    software: str  # GPU, driver, ROCm and torch that it is true of
    total: int | None  # steps of the whole job; None: not known
    left: int | None  # steps to be made
    deadline: float | None = None  # by the wall clock
    budget: float | None = None  # dollars
    trials: int = 0
    trial_seconds: float = 0.0  # of all of them together
    tried: float | None = None  # by the wall clock, if they are those of an earlier plan
    options: tuple[Option, ...] = ()
    ruled_out: tuple[Option, ...] = ()  # by a failure, a finding or a source
    not_tried: tuple[Option, ...] = ()  # that could run here, of which nothing is known yet
    machine: str = ""  # the recorded machine that it is for; "": this one
    drill_step: int = DRILL_STEP  # by which the script has saved, as far as a trial saw it
    take: str = ""  # the recommendation, with its reasons
    reasons: str = ""  # of the recommendation alone; sentences
    chain: Chain | None = None  # that begins with the recommended option
    recommended: int = 0  # the number of the option; 0: none is recommended
    limits: tuple[Limit, ...] = ()  # of the option that runs as the script says, the largest first
    warnings: tuple[str, ...] = ()
