"""All that is done next, from the history of a run, its options, and what is true here now.

``decide`` is pure. A restart never costs what the user already has: a script with no known way to
resume is not started again once it has made real progress, unless that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from rocsteady.doctor.knowledge.failures import Component, Nature, load_failures
from rocsteady.exit_codes import INTERRUPTED, PERSON_NEEDED, RETRY
from rocsteady.failures.ladder import choose_remedy
from rocsteady.failures.remedy import SAME_AGAIN, load_remedies
from rocsteady.failures.situation import BROUGHT_ABOUT, Situation, made_difference
from rocsteady.model import (
    CPU,
    BatchSplit,
    Decision,
    FailedAttempt,
    Failure,
    FailureKind,
    Next,
    Outcome,
    Strategy,
)
from rocsteady.run.options import Fallback, RunOptions, StopRule
from rocsteady.run.recovery.backoff import in_detail, limit_of, wait_of
from rocsteady.run.recovery.history import History
from rocsteady.run.recovery.machine import RunMachine, is_of_gpu
from rocsteady.store.forecast import ProgressPoint
from rocsteady.store.redaction import hide_secrets
from rocsteady.store.values import AttemptRecord, AttemptResult, Helped
from rocsteady.system.child_end import Exit
from rocsteady.wording import duration, inside_a_sentence, plural, signal_name

CHECKPOINT_BACK = "checkpoint-back"
# Ends of which the exit code is the script's own, whatever was tried before.
THE_SCRIPTS_OWN = (FailureKind.SCRIPT_ERROR, FailureKind.SCRIPT_EXIT, FailureKind.INTERRUPTED)
BY_SIGNAL = 128
ASKED_BY = (2, 9, 15)  # SIGINT, SIGKILL and SIGTERM: what a run that is stopped may end by
# Whose failures are the same with every option.
NO_OPTION_HELPS = (Component.SCRIPT, Component.DISK, Component.NETWORK)
# What follows where there is nothing to decide; a code of None is the script's own.
AFTER: Mapping[Outcome, tuple[Next, str, int | None]] = {
    Outcome.REPLACED: (Next.AGAIN, "other hosts restarted the job", PERSON_NEEDED),
    Outcome.LEFT: (Next.AGAIN, "no option of the plan is left", PERSON_NEEDED),
    Outcome.STOPPED: (Next.END, "stopped by the user", None),
    Outcome.AT_EXIT: (
        Next.END,
        "the script finished but did not exit, and was terminated",
        PERSON_NEEDED,
    ),
    Outcome.STARTED_OVER: (
        Next.END,
        (
            "the script started over instead of resuming: {over}. It was stopped, and what it wrote"
            " is undone. Run rocsteady init once"
        ),
        PERSON_NEEDED,
    ),
    Outcome.UNKILLABLE: (
        Next.END,
        "its processes cannot be killed, and may still hold the GPU",
        PERSON_NEEDED,
    ),
}


UNSEEN = "its steps could not be observed, so a restart could not be seen to resume"


@dataclass(frozen=True, kw_only=True)
class Here:
    machine: RunMachine
    now: float  # by the wall clock
    can_resume: bool = True
    unseen: bool = False  # whether it resumes as announced: its steps cannot be observed
    checkpoints: int = 0  # whole ones: 0, 1, or more
    cleared: bool = False  # the one that the script could not load was moved aside
    gone: str = ""  # the folder with checkpoints whose drive is gone
    in_allocation: bool = False  # of a scheduler
    due: float | None = None  # the deadline, by the wall clock
    needs: float | None = None  # steps a second to be in time, if the present option is too slow


def decide(history: History, options: RunOptions, here: Here) -> Decision:
    """Decide what comes after the last attempt."""
    last, failure = history.last, history.failure
    if last is None:
        return first_decision(history, options, here)
    base = same_again(history, options, can_resume=here.can_resume)
    if here.unseen and base.needs_resume:
        base = replace(base, why=UNSEEN)
    if last.outcome is Outcome.LEFT:
        option = next(iter(open_fallbacks(history, options, here.machine)), None)
        return _taken(base, _leave(option, "too slow"), history) if option else base
    if not last.failed or history.result.trained:
        return base
    limit = limit_of(history, options, in_allocation=here.in_allocation)
    late = here.due is not None and here.now >= here.due
    gave_up = ""
    if history.clears and failure and (late or history.waited >= limit.total_seconds()):
        gave_up = in_detail(failure)
    asked = failure is not None and not options.observe and last.outcome is not Outcome.UNKILLABLE
    choice = _proposal(base, history, options, here) if asked else None
    decision = _joined(base, choice, history) if choice else base
    if choice is None or not (decision.waits or (gave_up and not decision.ends)):
        decision = _past_checkpoint(decision, base, choice, history)
    elif gave_up:
        decision = gives_up(gave_up, history, options, in_allocation=here.in_allocation)
    decision = _of_the_script(decision, history)
    if decision.ends:
        return decision
    failed_gpu = failure is not None and is_of_gpu(failure)
    decision = replace(decision, gpu_failed=failed_gpu, announced=history.announced)
    wait = wait_of(decision, history, options, limit)
    if here.gone and decision.waits:  # a try would start over
        wait = max(0.0, limit.total_seconds() - history.waited)
    return replace(decision, wait=wait)


def same_again(history: History, options: RunOptions, *, can_resume: bool) -> Decision:
    """Decide without asking what could be changed."""
    if (last := history.last) is None:
        return go_on(history)
    base = base_decision(last, options, attempts=history.attempts, can_resume=can_resume)
    return replace(base, strategy=history.strategy, avoid=history.avoid)


def go_on(history: History) -> Decision:
    """Return what was decided before: a supervisor begins with it."""
    strategy, remedy, avoid = history.strategy, history.remedy, history.avoid
    return Decision(next=Next.AGAIN, why="", strategy=strategy, remedy=remedy, avoid=avoid)


def first_decision(history: History, options: RunOptions, here: Here) -> Decision:
    """Decide what a supervisor begins with; what took the machine down is not started again."""
    begins = go_on(history)
    if options.start_with:
        strategy = here.machine.asked_for(options.start_with)
        begins = replace(
            begins,
            why=f"--with {','.join(options.start_with)}",
            strategy=strategy,
            remedy=options.start_with[-1],
            asked=True,
        )
    crashed = begins.strategy
    if options.retry_crashed or crashed not in here.machine.deadly:
        return begins
    failure = load_failures().kinds[FailureKind.MACHINE_WENT_DOWN].failure
    tried = (*history.tried, FailedAttempt(strategy=crashed, failure=failure.fingerprint))
    situation = situation_of(history, options, here, failure, strategy=crashed, tried=tried)
    situation = replace(situation, can_resume=True, checkpoints=0)
    fallbacks = open_fallbacks(history, options, here.machine, tried)
    choice = _propose(situation, fallbacks, blamed=_is_blamed(history, failure, tried))
    if choice.ends:
        why = choice.why.rstrip(".")
        return Decision(
            next=Next.END, why=why, code=PERSON_NEEDED, strategy=crashed, avoid=history.avoid
        )
    return replace(_taken(begins, choice, history), crashed=crashed, asked=False)


def gives_up(title: str, history: History, options: RunOptions, *, in_allocation: bool) -> Decision:
    """Return the end of a run that has waited for long enough."""
    limit = limit_of(history, options, in_allocation=in_allocation)
    return Decision(
        next=Next.END,
        why=f"{title}, and no progress for {duration(limit.total_seconds())}",
        code=RETRY if in_allocation else PERSON_NEEDED,
        kind=history.failure.kind if history.failure else "",
        strategy=history.strategy,
        avoid=history.avoid,
    )


def situation_of(  # noqa: PLR0913 - what differs before the first attempt
    history: History,
    options: RunOptions,
    here: Here,
    failure: Failure,
    *,
    strategy: Strategy,
    tried: tuple[FailedAttempt, ...],
) -> Situation:
    kind = load_failures().kinds[failure.kind]
    machine, seen = here.machine, here.machine.gpus
    result = history.result
    helped = [each.remedy for each in offers(options, machine)]
    return Situation(
        failure=failure,
        nature=Nature.TRANSIENT if here.cleared else kind.nature,
        clears=kind.clears,
        component=kind.component,
        person=kind.fix,
        strategy=strategy,
        tried=tried[history.given_up :],
        machine=machine.machine(),
        variables=machine.variables,
        gpus=seen.gpus,
        gfx=seen.gfx,
        arches=seen.arches,
        loader=result.loader,
        batch_split=_split_in_force(history, strategy),
        precision=result.precision,
        can_resume=here.can_resume,
        checkpoints=here.checkpoints,
        ranks=result.ranks,
        ineffective=result.ineffective,
        crashed_machine=_never(history, machine),
        memory_full=machine.memory_full,
        helped_before=(*helped, *machine.probed()),
        allow=options.allowed,
        deny=options.deny,
        also=options.also,
    )


def offers(options: RunOptions, machine: RunMachine) -> list[Helped]:
    """Return what helped this script here before, and was not asked for."""
    return [each for each in machine.helped() if each.remedy not in options.start_with]


def in_force(history: History, options: RunOptions, machine: RunMachine) -> tuple[str, ...]:
    """Return the remedies that --with would need for the strategy in force; (): none helped."""
    if history.strategy == options.strategy or options.start_with:
        return ()
    if not made_difference(history.reached):
        return ()
    taken = [*dict.fromkeys(entry.remedy for entry in history.tried), history.remedy]
    names = [name for name in taken if name in load_remedies() and name != SAME_AGAIN]
    for first in reversed(range(len(names))):
        chosen = tuple(dict.fromkeys(names[first:]))
        if machine.with_remedies(chosen) == history.strategy:
            return chosen
    return ()


def open_fallbacks(
    history: History,
    options: RunOptions,
    machine: RunMachine,
    tried: tuple[FailedAttempt, ...] | None = None,
) -> tuple[Fallback, ...]:
    """Return the options of the plan that may be fallen back to."""
    entries = history.tried if tried is None else tried
    never = [replace(one, checkpoints_back=0) for one in _never(history, machine)]

    def may(strategy: Strategy) -> bool:
        if any(entry.strategy == strategy for entry in entries):
            return False
        deadly = strategy in never or any(is_as_deadly(strategy, one) for one in never)
        return options.retry_crashed or not deadly

    left = (each for each in options.fallbacks if each.number not in history.fallen_to)
    return tuple(each for each in left if may(each.strategy))


def is_as_deadly(strategy: Strategy, deadly: Strategy) -> bool:
    """Return whether a strategy is still the thing that took the machine down.

    A GPU that takes the machine down is not trusted with another loader or variable either: only
    what keeps the run off it is another thing.
    """
    return CPU not in (deadly.device, strategy.device)


def stop_rule(history: History, options: RunOptions) -> StopRule | None:
    rules = {each.number: each.stop for each in options.fallbacks}
    return rules.get(history.fallen_to[-1]) if history.fallen_to else options.stop


def base_decision(
    last: AttemptRecord, options: RunOptions, *, attempts: int, can_resume: bool
) -> Decision:
    """Choose between an end and the same again. Whether exit code 0 means done is not judged."""
    code = exit_code(last.outcome, Exit(code=last.exit_code, signal=last.signal))
    if last.outcome in AFTER:
        next_, why, ours = AFTER[last.outcome]
        over = last.result.started_over if last.result else ""
        return Decision(next=next_, why=why.format(over=over), code=code if ours is None else ours)
    if last.result and last.result.trained:
        return Decision(next=Next.END, why="the training was done, and something failed after it")
    if last.outcome is Outcome.BY_ITSELF and code == 0:
        return Decision(next=Next.END, why="the script finished", code=0)
    if last.outcome is Outcome.HUNG:
        code = RETRY if can_resume else PERSON_NEEDED
    if against := _against_another(options, attempts):
        return Decision(next=Next.END, why=against, code=code)
    return _again(last, options, can_resume=can_resume, code=code)


def exit_code(outcome: Outcome, end: Exit | None, stopped: int = INTERRUPTED) -> int:
    """Return the script's own code, as a shell would say it; ``stopped`` where it has none."""
    lost = end is None or (end.code is None and end.signal is None)
    if outcome is Outcome.STOPPED and (lost or (end and end.signal in ASKED_BY)):
        return stopped
    if end is None or lost:
        return PERSON_NEEDED
    return BY_SIGNAL + end.signal if end.signal else end.code or 0


def what_failed(history: History, failure: Failure) -> str:
    """Return what failed: the script's own words for its own error, else what it is called."""
    last = history.last
    name = signal_name(last.signal) if last and last.signal else ""
    if failure.kind in (FailureKind.SCRIPT_EXIT, FailureKind.UNKNOWN):
        return inside_a_sentence(hide_secrets(failure.title))
    if failure.kind == FailureKind.INTERRUPTED:
        return f"somebody ended the script{f' ({name})' if name else ''}"
    if failure.kind == FailureKind.SCRIPT_ERROR:
        seen = hide_secrets(failure.seen[0]) if failure.seen else failure.title
        return seen.rstrip(".")
    return (in_detail(failure) if history.clears else failure.title).rstrip(".")


def _against_another(options: RunOptions, attempts: int) -> str:
    """Return what speaks against any further attempt; "" if nothing does."""
    if options.observe:
        return "only observing"
    if options.max_attempts is not None and attempts >= options.max_attempts:
        return f"--max-attempts {options.max_attempts} is reached"
    return ""


def _again(last: AttemptRecord, options: RunOptions, *, can_resume: bool, code: int) -> Decision:
    """Start it again where that costs nothing; else only if that was asked for."""
    result = last.result or AttemptResult()
    much = result.progress_seconds >= options.timing.precious_after.total_seconds()
    again = Decision(next=Next.AGAIN, why="", code=code)
    if can_resume:
        return replace(again, why="retrying without changes from the last checkpoint")
    if not much and (result.all_cut_off or not result.wrote_checkpoint):
        return replace(again, why="retrying without changes; little progress can be lost")
    if options.from_scratch:
        why = "retrying without changes from the beginning"
        return replace(again, next=Next.AGAIN_FROM_SCRATCH, why=why)
    why = "it cannot resume, and a restart would lose its progress"
    if result.all_cut_off:
        why = "no checkpoint of the run is whole, and a restart would start from the beginning"
    elif options.ranks is not None:
        why += (
            "; if it loads its checkpoint when it is restarted, add --max-restarts 100 to torchrun"
        )
    return replace(again, next=Next.END, why=why, needs_resume=options.ranks is None)


def _proposal(base: Decision, history: History, options: RunOptions, here: Here) -> Decision | None:
    failure = history.failure
    if failure is None:
        return None
    tried = tuple(history.tried)
    situation = situation_of(
        history, options, here, failure, strategy=history.strategy, tried=tried
    )
    return _propose(
        situation,
        open_fallbacks(history, options, here.machine),
        blamed=_is_blamed(history, failure, tried),
        needs=None if base.ends else here.needs,
        leaves="" if base.ends else _fails_too_often(history, options, here.now),
    )


def too_slow(rule: StopRule, points: Sequence[ProgressPoint], now: float) -> str:
    """Return why an option is left at the end of its time; "" if it is kept.

    What restarts cost is part of its pace.
    """
    made = points[-1].step - points[0].step if points else 0
    rate = max(0, made) / (now - points[0].at) if points and now > points[0].at else 0.0
    if rule.least is None or rate >= rule.least:
        return ""
    slow = f"{rate:.3g} steps/s after {duration(rule.within)}"
    return f"{slow}, and the plan asks for {rule.least:.3g}"


def _fails_too_often(history: History, options: RunOptions, now: float) -> str:
    """Return why the rules of the plan end the present option; "" if they do not."""
    rule, began = stop_rule(history, options), history.option_began
    if rule is None or began is None or now - began > rule.within:
        return ""
    if history.option_failures < rule.failures:
        return ""
    return f"{plural(history.option_failures, 'failure')} within {duration(rule.within)}"


def _propose(
    situation: Situation,
    fallbacks: tuple[Fallback, ...] = (),
    *,
    blamed: bool = False,
    needs: float | None = None,
    leaves: str = "",
) -> Decision:
    """Choose a remedy; fall back to another option where none is left or only that is in time."""
    choice = choose_remedy(situation)
    if not fallbacks:
        return choice
    if leaves and situation.component not in NO_OPTION_HELPS:
        return _leave(fallbacks[0], leaves)
    if choice.ends:
        hopeless = choice.needs_person or situation.component in NO_OPTION_HELPS
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


def _leave(option: Fallback, why: str) -> Decision:
    """Go on to the next option, as the rules of the plan say."""
    return _fall_to(
        option, f"{why}; going on to option {option.number} of the plan: {option.title}."
    )


def _fall_to(option: Fallback, why: str) -> Decision:
    return Decision(next=Next.AGAIN, strategy=option.strategy, fallback=option.number, why=why)


def _joined(base: Decision, choice: Decision, history: History) -> Decision:
    """Join what may be done at all with what the ladder proposes.

    The exit code is the script's for script errors, unknown failures, and when nothing was tried;
    it is 76 if rocsteady gave up.
    """
    if not choice.ends:
        return base if base.ends else _taken(base, choice, history)
    kind = history.failure.kind if history.failure else ""
    gave_up = history.attempts > 1 and kind != FailureKind.UNKNOWN
    own = kind in THE_SCRIPTS_OWN or not (gave_up or choice.needs_person)
    return replace(
        choice,
        code=base.code if own else PERSON_NEEDED,
        strategy=base.strategy,
        avoid=base.avoid,
        kind=kind,
        exhausted=True,
    )


def _taken(base: Decision, choice: Decision, history: History) -> Decision:
    """Return what is done with the remedy or the option that was chosen."""
    from_ = history.result.checkpoint
    back = choice.remedy == CHECKPOINT_BACK and from_ is not None
    avoid = (*base.avoid, from_) if back and from_ else base.avoid
    return replace(choice, next=base.next, code=base.code, avoid=avoid, skipped=(), exhausted=False)


def _past_checkpoint(
    decision: Decision, base: Decision, choice: Decision | None, history: History
) -> Decision:
    """Get past a checkpoint by saving earlier, or give up on it, whatever the ladder says."""
    if base.ends:
        return decision
    starts = history.starts
    if starts.are_enough:
        start = "the same checkpoint" if any(starts.checkpoint or ()) else "the beginning"
        why = f"{len(starts.made)} tries from {start}, and none got to the next one"
        return replace(base, next=Next.END, why=why, code=PERSON_NEEDED)
    if history.result.batch_split is None or history.save_after is None:
        return decision
    exhausted = choice is not None and choice.exhausted
    if exhausted and (history.saves_earlier or history.progressed):
        return replace(base, why="saving earlier may let the run get past the failure")
    return decision


def _of_the_script(decision: Decision, history: History) -> Decision:
    """Say what the script itself ended with, where that ends the run."""
    crash = history.crash
    routine = history.is_routine or (history.repeats and history.clears)
    if crash is None or routine or not decision.ends:
        return decision
    unknown = crash.kind == FailureKind.UNKNOWN and not history.crashes
    if not unknown and crash.kind not in THE_SCRIPTS_OWN:
        return decision
    what = what_failed(history, crash)
    return replace(decision, why=f"{what}; not retried", kind=crash.kind, own_error=what)


def _split_in_force(history: History, strategy: Strategy) -> BatchSplit | None:
    """Return how the attempt that failed trained a batch; if it made no step, by an earlier."""
    split, asked = history.split, strategy.micro_batch
    if split is None or asked is None:
        return split
    return replace(split, micro_batch=min(split.micro_batch, asked))


def _never(history: History, machine: RunMachine) -> tuple[Strategy, ...]:
    """Return what crashed the machine, here or on an option that was given up."""
    given_up = history.tried[: history.given_up]
    return (
        *machine.deadly,
        *(e.strategy for e in given_up if e.failure.kind == FailureKind.MACHINE_WENT_DOWN),
    )


def _is_blamed(history: History, failure: Failure, tried: tuple[FailedAttempt, ...]) -> bool:
    """Return whether an option that was fallen back to has brought the failure about itself."""
    first = 0 < history.given_up == len(tried) - 1
    return first and failure.kind in BROUGHT_ABOUT and not tried[-1].progressed
