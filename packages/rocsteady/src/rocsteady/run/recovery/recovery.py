"""What comes after an attempt: an end, the same again, a remedy, or another option of the plan.

Two pure functions: ``base_decision`` says whether there may be another attempt at all; after a
failure, ``recover`` adds what was tried before and what is left to try.

A restart never costs what the user already has: a script with no known way to resume is not
started again once it has made real progress, unless that was asked for.
"""

from __future__ import annotations

import msgspec

from rocsteady.doctor.knowledge.failures import Component
from rocsteady.exit_codes import INTERRUPTED, PERSON_NEEDED, RETRY
from rocsteady.failures.ladder import RemedyChoice, choose_remedy
from rocsteady.failures.situation import Situation
from rocsteady.model import CPU, FailureKind, Next, Outcome, Strategy, Value
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.options import Fallback, RunOptions

MAX_ATTEMPTS_PER_CHECKPOINT = 3  # attempts from one checkpoint of which none gets further
MAX_FROM_ONE_START = 8  # attempts of which each gets a little further, and none to the next save
SAVE_EARLIER_AFTER = 2  # of them


class StartPoints:
    """The attempts in a row that started from the same checkpoint."""

    def __init__(self) -> None:
        self._start: str | None = None  # "": not by rocsteady; None: no attempt yet
        self._read = ""  # the checkpoint that the script found by itself
        self._made: list[int] = []  # steps that each of them made
        self._without_progress = 0  # attempts since one of them got further than all before
        self._a_little_further = 0  # attempts of them that did
        self.save_after: int | None = None  # steps, to get past where others ended

    def ended(self, start: str, made: int, *, progressed: bool, read: str = "") -> None:
        """Take an attempt into account that failed after so many steps of its own."""
        if (start, read) != (self._start, self._read):
            self._start, self._read, self._made = start, read, []
            self._without_progress = self._a_little_further = 0
        self._made.append(made)
        self._without_progress = 0 if progressed else self._without_progress + 1
        self._a_little_further += progressed
        if len(self._made) >= SAVE_EARLIER_AFTER and min(self._made):
            least = max(1, min(self._made) // 2)
            self.save_after = min(least, self.save_after or least)

    @property
    def is_stuck(self) -> bool:
        """Return whether there were enough attempts from one checkpoint."""
        stuck = bool(self._start) and self._without_progress >= MAX_ATTEMPTS_PER_CHECKPOINT
        return stuck or self._a_little_further >= MAX_FROM_ONE_START

    @property
    def attempts(self) -> int:
        """How many started from the last checkpoint."""
        return len(self._made)


# Ends of which the exit code is the script's own, whatever was tried before.
THE_SCRIPTS_OWN = (FailureKind.SCRIPT_ERROR, FailureKind.SCRIPT_EXIT, FailureKind.INTERRUPTED)
BY_SIGNAL = 128
ASKED_BY = (2, 9, 15)  # SIGINT, SIGKILL and SIGTERM: what a run that is stopped may end by
# Whose failures are the same with every option.
NO_OPTION_HELPS = (Component.SCRIPT, Component.DISK, Component.NETWORK)


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
    waits: bool = False  # for what can clear up by itself
    needs_resume: bool = False  # it ends only because no way to resume is known
    is_announced: bool = False  # by the crash, which was the last word


class History(Value, frozen=True, kw_only=True):
    """What was tried so far, the attempt that has just failed included, and what is left."""

    attempts: int  # that this supervisor has made
    situation: Situation | None = None  # for the ladder; None: it is not asked
    gpu_failed: bool = False
    progressed: bool = False  # the last one came further than all before it
    is_stuck: bool = False  # too many attempts started from one checkpoint
    from_one_start: int = 0  # attempts
    gave_up: str = ""  # why what can clear up is waited for no more; "": it is
    give_up_code: int = PERSON_NEEDED
    save_after: int | None = None  # steps, where attempts did not get past a checkpoint
    saves_earlier: bool = False  # than it did before
    fallbacks: tuple[Fallback, ...] = ()  # options of the plan that may be run, best first
    blamed: bool = False  # the present option is itself the cause of the failure
    needs: float | None = None  # steps a second to be in time, if the present option is too slow
    leaves: str = ""  # why the rules of the plan end the present option; "": they do not


def recover(base: Decision, end: AttemptEnd, history: History) -> Decision:
    """Choose what comes after an attempt that failed: ``base``, a remedy, or an option."""
    decision, proposal = base, None
    if history.situation is not None:
        proposal = propose(
            history.situation,
            history.fallbacks,
            blamed=history.blamed,
            needs=None if base.next is Next.END else history.needs,
            leaves="" if base.next is Next.END else history.leaves,
        )
        kind = history.situation.failure.kind
        decision = joined(base, proposal, kind=kind, attempts=history.attempts)
        if decision.waits or (history.gave_up and decision.next is not Next.END):
            return _waiting(decision, proposal, kind, history)
    decision = _past_checkpoint(decision, base, proposal, end, history)
    return msgspec.structs.replace(decision, proposal=proposal, gpu_failed=history.gpu_failed)


def _waiting(decision: Decision, proposal: RemedyChoice, kind: str, history: History) -> Decision:
    """Wait for what can clear up, until that has taken too long."""
    if history.gave_up:
        code, why = history.give_up_code, history.gave_up
        decision = Decision(next=Next.END, why=why, code=code, kind=kind)
    return msgspec.structs.replace(decision, proposal=proposal, gpu_failed=history.gpu_failed)


def propose(
    situation: Situation,
    fallbacks: tuple[Fallback, ...] = (),
    *,
    blamed: bool = False,
    needs: float | None = None,
    leaves: str = "",
) -> RemedyChoice:
    """Choose a remedy; fall back to another option where none is left or only that is in time."""
    choice = choose_remedy(situation)
    if not fallbacks:
        return choice
    if leaves and situation.component not in NO_OPTION_HELPS:
        return leave(fallbacks[0], leaves)
    if choice.strategy is None:
        hopeless = choice.person is not None or situation.component in NO_OPTION_HELPS
        if hopeless and not blamed:
            return choice
        why = "This option does not work" if blamed else "No workarounds are left"
        option = fallbacks[0]
        words = f"{why}; falling back to option {option.number} of the plan: {option.title}."
        return _fall_to(option, words)
    for option in fallbacks:
        if None not in (needs, option.rate) and (option.rate or 0) >= (needs or 0):
            words = (
                "At this pace the run misses the deadline; switching to option"
                f" {option.number} of the plan, which would be on time: {option.title}."
            )
            return _fall_to(option, words)
    return choice


def leave(option: Fallback, why: str) -> RemedyChoice:
    """Go on to the next option, as the rules of the plan say."""
    return _fall_to(
        option, f"{why}; going on to option {option.number} of the plan: {option.title}."
    )


def _fall_to(option: Fallback, why: str) -> RemedyChoice:
    return RemedyChoice(
        strategy=option.strategy, remedy=option.decision, fallback=option.number, why=why
    )


def _past_checkpoint(
    decision: Decision,
    base: Decision,
    proposal: RemedyChoice | None,
    end: AttemptEnd,
    history: History,
) -> Decision:
    """Get past a checkpoint by saving earlier, or give up on it, whatever the ladder says."""
    if base.next is Next.END:
        return decision
    if history.is_stuck:
        start = "the same checkpoint" if end.start or end.read else "the beginning"
        why = f"{history.from_one_start} tries from {start}, and none got to the next one"
        return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
    if end.batch_split is None or history.save_after is None:
        return decision
    exhausted = proposal is not None and proposal.exhausted
    if exhausted and (history.saves_earlier or history.progressed):
        why = "saving earlier may let the run get past the failure"
        return msgspec.structs.replace(base, why=why)
    return decision


def base_decision(  # noqa: C901, PLR0911 - one return a reason
    end: AttemptEnd, options: RunOptions, *, attempts: int, can_resume: bool
) -> Decision:
    """Choose between an end and the same again. Whether exit code 0 means done is not judged."""
    code = exit_code(end)
    if end.outcome is Outcome.REPLACED:
        return Decision(next=Next.AGAIN, why="other hosts restarted the job", code=PERSON_NEEDED)
    if end.outcome is Outcome.LEFT:
        return Decision(next=Next.AGAIN, why="no option of the plan is left", code=PERSON_NEEDED)
    if end.outcome is Outcome.PLANNED:
        return Decision(
            next=Next.AGAIN,
            why="restarting right after a save: the next failure is near",
            code=code,
        )
    if end.outcome is Outcome.STOPPED:
        return Decision(next=Next.END, why="stopped by the user", code=code)
    if end.outcome is Outcome.AT_EXIT:
        why = "the script finished but did not exit, and was terminated"
        return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
    if end.outcome is Outcome.BY_ITSELF and code == 0:
        return Decision(next=Next.END, why="the script finished", code=0)
    if end.outcome is Outcome.STARTED_OVER:
        why = (
            f"the script started over instead of resuming: {end.started_over}. It was stopped, and"
            " the files of the run are as they were before. Run rocsteady init once"
        )
        return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
    if end.outcome is Outcome.UNKILLABLE:
        why = "its processes cannot be killed, and may still hold the GPU"
        return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
    if end.outcome is Outcome.HUNG:
        code = RETRY if can_resume else PERSON_NEEDED
    if against := _against_another(options, attempts):
        return Decision(next=Next.END, why=against, code=code)
    return _again(end, options, can_resume=can_resume, code=code)


def joined(base: Decision, proposal: RemedyChoice, *, kind: str, attempts: int) -> Decision:
    """Join what may be done at all with the proposal.

    The exit code is the script's for script errors, unknown failures, and when nothing was tried;
    it is 76 if rocsteady gave up.
    """
    if proposal.strategy is None:
        gave_up = attempts > 1 and kind != FailureKind.UNKNOWN
        own = kind in THE_SCRIPTS_OWN or not (gave_up or proposal.person)
        code = base.code if own else PERSON_NEEDED
        return Decision(next=Next.END, why=proposal.why, code=code, kind=kind)
    if base.next is Next.END:
        return base
    return msgspec.structs.replace(
        base,
        why=proposal.why,
        remedy=proposal.remedy,
        fallback=proposal.fallback,
        waits=proposal.waits,
    )


def _against_another(options: RunOptions, attempts: int) -> str:
    """Return what speaks against any further attempt; "" if nothing does."""
    if options.observe:
        return "only observing"
    if options.max_attempts is not None and attempts >= options.max_attempts:
        return f"--max-attempts {attempts} is reached"
    return ""


def _again(end: AttemptEnd, options: RunOptions, *, can_resume: bool, code: int) -> Decision:
    """Start it again where that costs nothing; else only if that was asked for."""
    if can_resume:
        return Decision(
            next=Next.AGAIN, why="retrying without changes from the last checkpoint", code=code
        )
    precious = end.progress_seconds >= options.timing.precious_after.total_seconds()
    if not (precious or (end.wrote_checkpoint and not end.all_cut_off)):
        return Decision(
            next=Next.AGAIN, why="retrying without changes; little progress can be lost", code=code
        )
    if options.from_scratch:
        return Decision(
            next=Next.AGAIN_FROM_SCRATCH,
            why="retrying without changes from the beginning",
            code=code,
        )
    why = "found no way to resume, and a restart would lose its progress"
    if end.all_cut_off:
        why = "no checkpoint of the run is whole, and a restart would start from the beginning"
    elif options.ranks is not None:
        why += (
            "; if it loads its checkpoint when it is restarted, add --max-restarts 100 to torchrun"
        )
    return Decision(next=Next.END, why=why, code=code, needs_resume=options.ranks is None)


def exit_code(end: AttemptEnd, stopped: int = INTERRUPTED) -> int:
    """Return the script's own code, as a shell would say it; ``stopped`` where it has none."""
    lost = end.exit is None or (end.exit.code is None and end.exit.signal is None)
    if end.outcome is Outcome.STOPPED and (lost or (end.exit and end.exit.signal in ASKED_BY)):
        return stopped
    if end.exit is None or lost:
        return PERSON_NEEDED
    return BY_SIGNAL + end.exit.signal if end.exit.signal else end.exit.code or 0


def is_as_deadly(strategy: Strategy, deadly: Strategy) -> bool:
    """Return whether a strategy is still the thing that took the machine down.

    A GPU that takes the machine down is not trusted with another loader or variable either: only
    what keeps the run off it is another thing.
    """
    return CPU not in (deadly.device, strategy.device)
