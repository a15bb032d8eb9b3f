"""What comes after an attempt: an end, the same again, a remedy, or another option of the plan.

One pure function, ``recover``, of how the attempt ended, of what was tried before and of what there
is to choose from. The supervisor does what it says.

A restart never costs what the user already has: a script with no known way to resume is not
started again once it has made real progress, unless that was asked for.
"""

from __future__ import annotations

import msgspec

from rocsteady.doctor.knowledge.failures import SCRIPT_ERROR, UNKNOWN, Component
from rocsteady.exit_codes import INTERRUPTED, PERSON_NEEDED, RETRY
from rocsteady.failures.ladder import RemedyChoice, choose_remedy
from rocsteady.failures.situation import Situation
from rocsteady.model import Next, Outcome, Strategy, Value
from rocsteady.run.attempt_end import AttemptEnd
from rocsteady.run.attempt_settings import Settings
from rocsteady.run.start_points import MOST
from rocsteady.wording import plural

CPU = "cpu"  # as a device
BY_SIGNAL = 128
ASKED_BY = (2, 9, 15)  # SIGINT, SIGKILL and SIGTERM: what a run that is stopped may end by
# Whose failures are the same with every option.
NO_OPTION_HELPS = (Component.SCRIPT, Component.DISK, Component.NETWORK)


class FallTo(Value, frozen=True, kw_only=True):
    """An option of the plan that a run may fall to: the same command."""

    number: int  # as it is typed, `run --plan 2`
    title: str
    strategy: Strategy
    rate: float | None = None  # steps a second, as its trial had it

    @property
    def decision(self) -> str:
        """As the journal names that it was taken."""
        return f"option-{self.number}"


class Decision(Value, frozen=True, kw_only=True):
    """What comes next, and why."""

    next: Next
    why: str
    code: int  # with which rocsteady ends, if it ends
    remedy: str = ""  # that the next attempt has; "": the same again
    kind: str = ""  # of the failure that ended the run; "": not known, or none
    fallback: int = 0  # the option of the plan that the run falls back to; 0: it does not
    proposal: RemedyChoice | None = None  # what the ladder said, if it was asked
    gpu_failed: bool = False  # so it is checked before it is used again


class History(Value, frozen=True, kw_only=True):
    """What was tried so far, the attempt that has just ended included."""

    attempts: int  # that this supervisor has made
    failed: bool = False  # the last one did
    situation: Situation | None = None  # for the ladder; None: it is not asked
    gpu_failed: bool = False
    progressed: bool = False  # the last one came further than all before it
    is_stuck: bool = False  # too many attempts started from one checkpoint
    save_after: int | None = None  # steps, where attempts did not get past a checkpoint
    saves_earlier: bool = False  # than it did before


class Choices(Value, frozen=True, kw_only=True):
    """What there is to choose from."""

    settings: Settings
    can_resume: bool = False
    fallbacks: tuple[FallTo, ...] = ()  # options of the plan that may be run, best first
    blamed: bool = False  # the present option is itself the cause of the failure
    needs: float | None = None  # steps a second to be in time, if the present option is too slow


def recover(end: AttemptEnd, history: History, choices: Choices) -> Decision:
    """Choose what comes after an attempt."""
    if end.outcome is Outcome.REPLACED:
        return Decision(next=Next.AGAIN, why="other hosts restarted the job", code=PERSON_NEEDED)
    plain = without_remedies(
        end, number=history.attempts, can_resume=choices.can_resume, settings=choices.settings
    )
    if not history.failed:
        return plain
    decision, proposal = plain, None
    if history.situation is not None:
        needs = None if plain.next is Next.END else choices.needs
        hurried = msgspec.structs.replace(choices, needs=needs)
        proposal = propose(history.situation, hurried)
        kind = history.situation.failure.kind
        decision = joined(plain, proposal, kind=kind, attempts=history.attempts)
    decision = _past_checkpoint(decision, plain, proposal, end, history)
    return msgspec.structs.replace(decision, proposal=proposal, gpu_failed=history.gpu_failed)


def propose(situation: Situation, choices: Choices) -> RemedyChoice:
    """Choose a remedy; fall back to another option where it ends or only that is in time."""
    step = choose_remedy(situation)
    if not choices.fallbacks:
        return step
    if step.strategy is None:
        hopeless = step.person is not None or situation.component in NO_OPTION_HELPS
        if hopeless and not choices.blamed:
            return step
        why = "This option does not work" if choices.blamed else "No remedies are left"
        option = choices.fallbacks[0]
        words = f"{why}; falling back to option {option.number} of the plan: {option.title}."
        return _fall_to(option, words)
    for option in choices.fallbacks:
        if None not in (choices.needs, option.rate) and (option.rate or 0) >= (choices.needs or 0):
            words = (
                "At this pace the run misses the deadline; switching to option"
                f" {option.number} of the plan, which would be on time: {option.title}."
            )
            return _fall_to(option, words)
    return step


def _fall_to(option: FallTo, why: str) -> RemedyChoice:
    return RemedyChoice(
        strategy=option.strategy, remedy=option.decision, fallback=option.number, why=why
    )


def _past_checkpoint(
    decision: Decision,
    plain: Decision,
    proposal: RemedyChoice | None,
    end: AttemptEnd,
    history: History,
) -> Decision:
    """Get past a checkpoint by saving earlier, or give up on it, whatever the ladder says."""
    if plain.next is Next.END:
        return decision
    if history.is_stuck:
        why = f"{MOST} attempts started from the same checkpoint, and none got past it"
        return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
    if end.batch_split is None or history.save_after is None:
        return decision
    exhausted = proposal is not None and proposal.exhausted
    if exhausted and (history.saves_earlier or history.progressed):
        why = "saving earlier may let the run get past the failure"
        return msgspec.structs.replace(plain, why=why)
    return decision


def without_remedies(
    end: AttemptEnd, *, number: int, can_resume: bool, settings: Settings
) -> Decision:
    """Choose between an end and the same again. Whether exit code 0 means done is not judged."""
    code = exit_code(end)
    if end.outcome is Outcome.STOPPED:
        return Decision(next=Next.END, why="stopped by the user", code=code)
    if end.outcome is Outcome.AT_EXIT:
        why = "the script finished but did not exit, and was terminated"
        return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
    if end.outcome is Outcome.BY_ITSELF and code == 0:
        return Decision(next=Next.END, why="the script finished", code=0)
    if end.outcome is Outcome.UNKILLABLE:
        why = "processes of the last attempt cannot be killed, and may still hold the GPU"
        return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
    hung = end.outcome is Outcome.HUNG
    if hung:
        code = RETRY if can_resume else PERSON_NEEDED
    against = _against_another(end, number=number, hung=hung, settings=settings)
    if against:
        return Decision(next=Next.END, why=against, code=code)
    return _again(end, can_resume=can_resume, settings=settings, code=code)


def joined(plain: Decision, proposal: RemedyChoice, *, kind: str, attempts: int) -> Decision:
    """Join what may be done at all with what the ladder says.

    The script's own code is given for its own errors, for what is not known, and where nothing
    was tried; giving up, or needing a person, is a code of ours.
    """
    if proposal.strategy is None:
        gave_up = attempts > 1 and kind != UNKNOWN
        own = kind == SCRIPT_ERROR or not (gave_up or proposal.person)
        code = plain.code if own else PERSON_NEEDED
        return Decision(next=Next.END, why=proposal.why, code=code, kind=kind)
    if plain.next is Next.END:
        return plain
    return msgspec.structs.replace(
        plain, why=proposal.why, remedy=proposal.remedy, fallback=proposal.fallback
    )


def _against_another(end: AttemptEnd, *, number: int, hung: bool, settings: Settings) -> str:
    """Say what speaks against any further attempt; "" if nothing does."""
    if settings.observe:
        return "only observing"
    if number >= settings.most_attempts:
        return f"the limit of {plural(number, 'attempt')} is reached"
    if not settings.remedies and not hung and not end.last_step:
        return "the script failed before its first step"
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
        "rocsteady does not know how the script resumes, and a restart would lose its progress;"
        " set [resume] in rocsteady.toml, or use --from-scratch"
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


def is_as_deadly(strategy: Strategy, deadly: Strategy) -> bool:
    """Tell whether a strategy is still the thing that took the machine down.

    A GPU that takes the machine down is not trusted with another loader or variable either: only
    what keeps the run off it is another thing.
    """
    return CPU not in (deadly.device, strategy.device)
