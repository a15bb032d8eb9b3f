"""What the user chose for a run, and the durations and limits that only tests and trials change."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from rocsteady.failures.remedy import SAME_AGAIN
from rocsteady.hangs.judgment.verdict import Patience
from rocsteady.model import Strategy, Value
from rocsteady.system.child_end import Stopping

AUTO, NEVER_RESUME = "auto", "never"  # what --resume takes beside the name of a run


class Timing(Value, frozen=True, kw_only=True):
    tick: timedelta = timedelta(milliseconds=200)
    snapshot_within: timedelta = timedelta(seconds=3)
    evidence_within: timedelta = timedelta(seconds=10)
    patience: Patience = Patience()
    stopping: Stopping = Stopping()
    continue_after: timedelta = timedelta(seconds=60)  # a stopped run, once
    continue_unattended_after: timedelta = timedelta(seconds=10)  # the same without a terminal
    precious_after: timedelta = timedelta(minutes=10)  # progress that is not thrown away unasked
    resume_trial: timedelta = timedelta(seconds=60)  # after the first step, to read a checkpoint
    quick_crash: timedelta = timedelta(seconds=10)  # a second one within it backs off
    back_off: timedelta = timedelta(seconds=5)  # doubled each time
    gpu_rest: timedelta = timedelta(seconds=60)  # that the kernel is quiet about a GPU that failed
    gpu_rest_at_most: timedelta = timedelta(minutes=5)
    gauges_every: timedelta | None = None  # None: memory and GPUs each at their own pace
    kfd_within: timedelta = timedelta(seconds=15)  # for old processes to leave the GPU


class StopRule(Value, frozen=True, kw_only=True):
    """When a run leaves an option of the plan for the next one."""

    within: float  # seconds from when the option began; after them it is kept
    failures: int  # so many of them end it
    least: float | None = None  # steps a second; what is slower at the end of that time is left


class Fallback(Value, frozen=True, kw_only=True):
    """An option of the plan that a run may fall back to: the same command."""

    number: int  # as it is typed, `run --plan 2`
    title: str
    strategy: Strategy
    rate: float | None = None  # steps a second, as its trial had it
    stop: StopRule | None = None  # when it is left in turn; None: only if nothing else helps


class RunOptions(Value, frozen=True, kw_only=True):
    """What the user chose: one value, from the command line to the attempt.

    To add an option to ``rocsteady run``: a field here, and a click.option of the same name in
    cli/run.py. Whatever has the options of the run can then read it; ``--detach`` passes it on.
    """

    command: tuple[str, ...] = ()  # as it was typed; (): that of the job file
    name: str | None = None
    # AUTO, NEVER_RESUME or a run's name; None: by the last run of the job.
    resume: str | None = None
    resume_trainer: bool = False  # give a plain trainer.train() or fit() the checkpoint
    notify: str = ""  # the address of a webhook; a secret
    find_cause: bool = False  # once it has given up because of an operation
    plan: int | None = None  # the option of the last plan that is run
    max_attempts: int | None = None  # None: the ladder has a budget of its own
    give_up_after: timedelta | None = None  # without progress; None: by what happened, and where
    hang_after: timedelta | None = None  # None: as the job file says, else as it is measured
    observe: bool = False  # never act
    no_remedies: bool = False  # retry without changing anything
    allow: tuple[str, ...] = ()  # remedies
    deny: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # though they change numbers
    start_with: tuple[str, ...] = ()
    retry_crashed: bool = False  # also what crashed the machine
    anyway: bool = False  # start though the doctor says that training is blocked here
    yes: bool = False  # ask nothing
    plain: bool = False  # no colours
    detach: bool = False
    without_terminal: bool = False  # this is the process that --detach has started
    ranks: int | None = None  # a socket to the torchrun whose ranks are watched
    several_hosts: bool = False  # have ranks of its job
    first_host: bool = True  # has rank 0, which saves checkpoints in most scripts
    from_scratch: bool = False  # restart even if all work is done again; --resume never implies it
    strategy: Strategy = Strategy()  # to start with: that of the option of the plan
    stop: StopRule | None = None  # when that is left for the next
    fallbacks: tuple[Fallback, ...] = ()  # the options after it, best first
    follows_plan: bool = True  # also when it is resumed; a policy may forbid it
    timing: Timing = Timing()

    @property
    def allowed(self) -> tuple[str, ...]:
        """The only workarounds that may be used; (): any."""
        return (SAME_AGAIN,) if self.no_remedies or self.observe else self.allow

    @property
    def resumed_run(self) -> str | None:
        """The name of the run to continue; None: a new one starts."""
        return None if self.resume in (AUTO, NEVER_RESUME) else self.resume

    @property
    def patience(self) -> Patience:
        """How long is too long; the user's own limit replaces those of all that is unproven."""
        return replace(self.timing.patience, hang_after=self.hang_after)


class Followed(Value, frozen=True, kw_only=True):
    """What a run follows of its plan."""

    stop: StopRule | None = None  # of the option that it began with
    fallbacks: tuple[Fallback, ...] = ()
