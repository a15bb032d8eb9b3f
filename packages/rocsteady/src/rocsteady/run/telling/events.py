"""What a run tells the person who started it: one value for each event, in words on the screen.

``screens/run_lines.py`` writes them; the journal keeps the kind of each beside its words.
"""

from __future__ import annotations

from typing import ClassVar

from rocsteady.doctor.knowledge.values import Fix
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.model import FailureKind, RunEvent, RunState, Value
from rocsteady.run.checkpoints.resume_detection import ResumeMethod


class Event(Value, frozen=True, kw_only=True):
    about: ClassVar[RunEvent] = RunEvent.NOTE

    @property
    def kind(self) -> RunEvent:
        return self.about


class Note(Event, frozen=True, kw_only=True):
    """Whatever has no state."""

    text: str


class Faults(Event, frozen=True, kw_only=True):
    """Failures are injected into this run on purpose."""

    about: ClassVar[RunEvent] = RunEvent.FAULTS
    variable: str  # that asks for them


class Started(Event, frozen=True, kw_only=True):
    about: ClassVar[RunEvent] = RunEvent.STARTED
    name: str
    command: tuple[str, ...]
    again: bool = False  # a run that was left is continued
    settings: str = ""  # that differ from the script's own
    observe: bool = False
    method: ResumeMethod | None = None  # None: the job file says how it resumes


class Quiet(Event, frozen=True, kw_only=True):
    """Nothing was heard of the run for long: it is starting, slow, stopped, or hung."""

    verdict: Verdict
    step: int | None = None
    again: bool = False  # hung where it hung before
    observe: bool = False

    @property
    def kind(self) -> RunEvent:
        if self.verdict.condition is RunState.HUNG:
            return RunEvent.HUNG
        if self.verdict.condition is RunState.STOPPED:
            return RunEvent.STOPPED
        return RunEvent.STARTING if self.verdict.starting else RunEvent.SLOW


class Moving(Event, frozen=True, kw_only=True):
    """It goes on after it was slow."""

    about: ClassVar[RunEvent] = RunEvent.MOVING
    step: int | None
    after: float  # seconds


class Crashed(Event, frozen=True, kw_only=True):
    what: str  # "KeyError: 'val_loss'", or what the failure is called
    failure: str = FailureKind.UNKNOWN
    place: str = ""  # "train.py:12 in step"
    step: int | None = None
    rank: int | None = None  # of several, that failed first
    own: bool = False  # the script's own error or exit, which is not retried
    lower: tuple[tuple[str, int], ...] = ()  # arguments by which it would need less memory

    @property
    def kind(self) -> RunEvent:
        intended = (FailureKind.SCRIPT_EXIT, FailureKind.INTERRUPTED)
        return RunEvent.EXITED if self.failure in intended else RunEvent.CRASHED


class Waiting(Event, frozen=True, kw_only=True):
    """For what can clear up by itself."""

    about: ClassVar[RunEvent] = RunEvent.WAITING
    trouble: str
    advice: str = ""
    next_try: float | None = None  # seconds; None: when it has cleared up
    limit: float | None = None  # seconds, after which it gives up


class Resumed(Event, frozen=True, kw_only=True):
    """The next try has begun."""

    at: str = ""  # "step 200"; "": not known
    checkpoint: str = ""  # "": none is given to it, and whether it finds one is not known
    by_itself: bool = False  # the script finds its own
    changes: str = ""  # "num_workers=0"; "": none
    option: str = ""  # of the plan, that it goes on with
    in_vain: str = ""  # the workaround that did not help, and is undone

    @property
    def kind(self) -> RunEvent:
        return RunEvent.RESUMED if self.checkpoint else RunEvent.RETRYING


class Stopped(Event, frozen=True, kw_only=True):
    """By the user."""

    about: ClassVar[RunEvent] = RunEvent.STOPPED
    seconds: float
    step: int | None = None
    code: int | None = None  # the script's own
    resume: str = ""  # what to type
    resumes: bool = True  # from a checkpoint


class GaveUp(Event, frozen=True, kw_only=True):
    about: ClassVar[RunEvent] = RunEvent.GAVE_UP
    seconds: float
    why: str
    place: str = ""  # of the user's own, at which it hung
    change: str = ""  # what to change there
    fix: Fix | None = None  # what else to do
    no_resume: tuple[str, ...] = ()  # the command, where only a way to resume is missing
    method: ResumeMethod | None = None  # what is known of it
    all_cut_off: bool = False  # or where only a whole checkpoint is missing
    then: str = ""  # what to type once that is done
    cause: str = ""  # what to type to find the operation that fails
    report: str = ""


class Done(Event, frozen=True, kw_only=True):
    about: ClassVar[RunEvent] = RunEvent.DONE
    seconds: float
    steps: int | None = None
    exact: bool = True  # the number of steps
    hangs: int = 0
    crashes: int = 0
    lost: float = 0.0  # seconds, to both
    deadline: str = ""  # how it was met
    not_finite: int = 0  # the step by which the loss was NaN or infinite, to the end; 0: it was not
    afterwards: str = ""  # what failed once the training was done
    place: str = ""  # of the user's own, at which it hung
    keep: str = ""  # what to type to start with the workaround
    report: str = ""  # what to type to read what happened
