"""What to do after an attempt: nothing more, or another one. A pure function.

A restart never costs what the user already has: a script with no known way to resume is not
started again once it has made real progress, unless that was asked for.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from rocsteady.knowledge.failures import SCRIPT_ERROR, UNKNOWN
from rocsteady.remedies.ladder import Step
from rocsteady.supervisor.attempt_end import AttemptEnd, Outcome
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.stop_requests import INTERRUPTED
from rocsteady.vocabulary import Value

RETRY_WITHOUT_A_PERSON, PERSON_NEEDED = 75, 76
BY_SIGNAL = 128
ASKED_BY = (2, 9, 15)  # SIGINT, SIGKILL and SIGTERM: what a run that is stopped may end by


class Next(Enum):
    """What comes next."""

    END = "end"
    AGAIN = "again"
    AGAIN_FROM_SCRATCH = "again, from the beginning"


class Decision(Value, frozen=True, kw_only=True):
    """What comes next, and why."""

    next: Next
    why: str
    code: int  # with which rocsteady ends, if it ends
    remedy: str = ""  # that the next attempt has; "": the same again
    kind: str = ""  # of the failure that ended the run; "": not known, or none
    gpu_failed: bool = False  # so it is checked before it is used again


def decide(end: AttemptEnd, *, number: int, can_resume: bool, settings: Settings) -> Decision:
    """Choose. Exit code 0 is looked at by whoever knows what done means."""
    code = exit_code(end)
    if end.outcome is Outcome.STOPPED:
        return Decision(next=Next.END, why="stopped by the user", code=code)
    if end.outcome is Outcome.AT_EXIT:
        why = "the script finished but did not exit, and was terminated"
        return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
    if end.outcome is Outcome.BY_ITSELF and code == 0:
        return Decision(next=Next.END, why="ended by itself", code=0)
    if end.outcome is Outcome.UNKILLABLE:
        why = "processes of the last attempt cannot be killed, and may still hold the GPU"
        return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
    hung = end.outcome is Outcome.HUNG
    if hung:
        code = RETRY_WITHOUT_A_PERSON if can_resume else PERSON_NEEDED
    against = _against(end, number=number, hung=hung, settings=settings)
    if against:
        return Decision(next=Next.END, why=against, code=code)
    return _again(end, can_resume=can_resume, settings=settings, code=code)


def after_climbing(plain: Decision, step: Step, *, kind: str, attempts: int) -> Decision:
    """Join what may be done at all with what the ladder says.

    The script's own code is given for its own errors, for what is not known, and where nothing
    was tried; giving up, or needing a person, is a code of ours.
    """
    if step.strategy is None:
        gave_up = attempts > 1 and kind != UNKNOWN
        own = kind == SCRIPT_ERROR or not (gave_up or step.person)
        code = plain.code if own else PERSON_NEEDED
        return Decision(next=Next.END, why=step.why, code=code, kind=kind)
    if plain.next is Next.END:
        return plain
    return msgspec.structs.replace(plain, why=step.why, remedy=step.remedy)


def _against(end: AttemptEnd, *, number: int, hung: bool, settings: Settings) -> str:
    """Say what speaks against any further attempt; "" if nothing does."""
    if settings.observe:
        return "only observing"
    if number >= settings.most_attempts:
        return f"{number} attempt{'s were' if number > 1 else ' was'} made"
    if not settings.remedies and not hung and not end.last_step:
        return "it failed before its first step"
    return ""


def _again(end: AttemptEnd, *, can_resume: bool, settings: Settings, code: int) -> Decision:
    """Start it again where that costs nothing; else only if that was asked for."""
    if can_resume:
        return Decision(
            next=Next.AGAIN, why="retrying without changes from the last checkpoint", code=code
        )
    precious = end.progress_seconds >= settings.precious_after.total_seconds()
    if not (precious or end.wrote_checkpoint):
        return Decision(
            next=Next.AGAIN, why="retrying without changes; little progress can be lost", code=code
        )
    if settings.from_scratch:
        return Decision(
            next=Next.AGAIN_FROM_SCRATCH,
            why="retrying without changes; --from-scratch was given",
            code=code,
        )
    why = (
        "it has no known way to resume, and starting again would throw away what it has done;"
        " name one in rocsteady.toml, or give --from-scratch"
    )
    return Decision(next=Next.END, why=why, code=code)


def exit_code(end: AttemptEnd, stopped: int = INTERRUPTED) -> int:
    """Return the script's own code, as a shell would say it; ``stopped`` where it has none."""
    lost = end.exit is None or (end.exit.code is None and end.exit.signal is None)
    if end.outcome is Outcome.STOPPED and (lost or (end.exit and end.exit.signal in ASKED_BY)):
        return stopped
    if end.exit is None or lost:
        return PERSON_NEEDED
    return BY_SIGNAL + end.exit.signal if end.exit.signal else end.exit.code or 0
