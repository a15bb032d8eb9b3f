"""From what failed, where and after what, to the next strategy or to an end. A pure function.

One reversible change at a time, cheapest first. What may be chance is tried again once; the same
failure at the same step twice is not chance. A remedy that did not help is reverted before the next
is tried. Progress refills the budget. It always ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from rocsteady.doctor.knowledge.failures import Nature
from rocsteady.failures.computed import ALREADY_TRIED
from rocsteady.failures.difference import changed, describe_changes
from rocsteady.failures.remedy import SAME_AGAIN, Remedy, load_remedies
from rocsteady.failures.situation import (
    BROUGHT_ABOUT,
    LadderPosition,
    Refused,
    Situation,
    is_same,
    standing_of,
    strategies_tried,
)
from rocsteady.model import Decision, FailedAttempt, FailureKind, Next, Strategy

# Attempts in a row without progress, where there was some and no remedy is left.
LAST_RETRIES = 2
WAITS = "This can clear up by itself."
MAY_BE_TRANSIENT = "Retrying without changes."


INTENDED = {
    FailureKind.INTERRUPTED: "Somebody asked the script to end.",
    FailureKind.SCRIPT_EXIT: "The script ended itself, without an error.",
}


def choose_remedy(situation: Situation) -> Decision:
    """Choose the next strategy, or stop."""
    choice = _chosen(situation)
    if (
        not situation.clears
        or choice.remedy not in ("", SAME_AGAIN)
        or unwanted(SAME_AGAIN, situation)
    ):
        return choice
    strategy = standing_of(situation).strategy if choice.ends else choice.strategy
    return msgspec.structs.replace(
        choice,
        next=Next.AGAIN,
        strategy=strategy,
        remedy=SAME_AGAIN,
        waits=True,
        why=WAITS,
        needs_person=False,
    )


def _chosen(situation: Situation) -> Decision:
    standing = standing_of(situation)
    caused_by_remedy = bool(standing.reverted) and situation.failure.kind in BROUGHT_ABOUT
    if not caused_by_remedy and (end := _end_at_once(situation)):
        return end
    if why := _spent_budget(situation):
        return Decision(next=Next.END, why=why)
    if not caused_by_remedy and (again := _retry_with_remedy(situation, standing)):
        return again
    return _cheapest(situation, standing)


def _end_at_once(situation: Situation) -> Decision | None:
    """End where no setting can help."""
    failure = situation.failure
    if situation.clears:
        return None
    if failure.kind in INTENDED:
        return Decision(next=Next.END, why=INTENDED[failure.kind])
    if situation.person is not None:
        why = f"{(failure.title or failure.kind).rstrip('.')}."
        return Decision(next=Next.END, why=why, needs_person=True)
    if failure.kind == FailureKind.SCRIPT_ERROR:
        why = "The script raised an error that no setting can fix."
        return Decision(next=Next.END, why=why)
    return None


def _spent_budget(situation: Situation) -> str:
    """Return which budget is used up; "" if none is."""
    tried = [attempt for attempt in situation.tried if not attempt.clears]
    budget, without_progress = situation.budget, _without_progress(tried)
    kinds = [attempt.failure.kind for attempt in tried[len(tried) - without_progress :]]
    if without_progress >= budget.without_progress:
        return f"The last {without_progress} tries made no progress."
    if kinds.count(situation.failure.kind) >= budget.tries:
        return f"The last {budget.tries} tries that ended this way made no progress."
    return ""


def _without_progress(tried: Sequence[FailedAttempt]) -> int:
    """Count the attempts since the last one that came further."""
    return next((n for n, attempt in enumerate(reversed(tried)) if attempt.progressed), len(tried))


def _retry_with_remedy(situation: Situation, standing: LadderPosition) -> Decision | None:
    """Try a remedy once more if what ended it may be chance, and not what it was meant for."""
    if not standing.reverted or is_same(situation.failure.fingerprint, standing.current_failure):
        return None
    if unwanted(SAME_AGAIN, situation):
        return None
    strategy = load_remedies()[SAME_AGAIN].apply(situation)
    if isinstance(strategy, Refused) or _ruled_out(strategy, situation, situation.strategy):
        return None
    return Decision(next=Next.AGAIN, strategy=strategy, remedy=SAME_AGAIN, why=MAY_BE_TRANSIENT)


def _cheapest(situation: Situation, standing: LadderPosition) -> Decision:
    """Choose the cheapest remedy that is right here; what helped this script before comes first."""
    here = _to_be_answered(situation, standing)
    kind = here.failure.kind
    answers = [remedy for remedy in load_remedies().values() if remedy.answers_to(kind)]
    skipped: list[tuple[str, Refused]] = []
    for remedy in sorted(answers, key=lambda it: it.id not in here.helped_before):
        result = _applied(remedy, here, situation)
        if isinstance(result, Refused):
            skipped.append((remedy.id, result))
            continue
        return Decision(
            next=Next.AGAIN,
            strategy=result,
            remedy=remedy.id,
            reverted=standing.reverted,
            why=_why_reverted(situation, standing) + _reason(remedy, standing.strategy, result),
            skipped=_untried(skipped),
        )
    return _nothing_left(situation, standing, skipped)


def _to_be_answered(situation: Situation, standing: LadderPosition) -> Situation:
    """Return the situation with the strategy that stays and the failure that is to be answered."""
    here = msgspec.structs.replace(situation, strategy=standing.strategy)
    fingerprint = standing.current_failure
    if is_same(fingerprint, situation.failure.fingerprint):
        return here
    failure = msgspec.structs.replace(
        situation.failure, kind=fingerprint.kind, fingerprint=fingerprint
    )
    return msgspec.structs.replace(here, failure=failure, nature=Nature.DETERMINISTIC)


def _applied(remedy: Remedy, here: Situation, situation: Situation) -> Strategy | Refused:
    if why := unwanted(remedy.id, here):
        return Refused(why=why)
    result = remedy.apply(here)
    if isinstance(result, Refused):
        return result
    if refused := _ruled_out(result, situation, here.strategy):
        return refused
    if result != here.strategy:
        settings = [name for name in changed(here.strategy, result) if name in here.ineffective]
        if settings:
            return Refused(why=f"{settings[0]} has no effect on this script")
        if result in strategies_tried(here):
            return Refused(why=ALREADY_TRIED, was_tried=True)
    consent = remedy.needs_consent(here)
    return Refused(why=consent, needs_consent=True) if consent else result


def unwanted(remedy: str, situation: Situation) -> str:
    """Return why a remedy may not be used; "" if it may."""
    if remedy in situation.deny:
        return "denied by --deny"
    named = (*situation.allow, *situation.also)
    return "not in --allow" if situation.allow and remedy not in named else ""


def _ruled_out(strategy: Strategy, situation: Situation, current: Strategy) -> Refused | None:
    """Return why a strategy must not be run, whatever led to it."""
    tried, fingerprint = situation.tried, situation.failure.fingerprint
    crashed = (*situation.crashed_machine, *_crashed_machine(tried))
    if _on_the_machine(strategy) in map(_on_the_machine, crashed):
        return Refused(why="the machine went down with these settings")
    ended = [it for it in tried if (it.strategy, it.failure) == (strategy, fingerprint)]
    if strategy == current and len(ended) > 1:
        return Refused(why="the run failed twice at the same step")
    if any(
        before.failure == fingerprint and after.strategy == strategy
        for before, after in pairwise(tried)
    ):
        return Refused(why=ALREADY_TRIED, was_tried=True)
    return None


def _crashed_machine(tried: Sequence[FailedAttempt]) -> list[Strategy]:
    """Return what the machine went down with; not what somebody tried again all the same."""
    settings = [_on_the_machine(attempt.strategy) for attempt in tried]
    return [
        attempt.strategy
        for at, attempt in enumerate(tried)
        if attempt.failure.kind == FailureKind.MACHINE_WENT_DOWN
        and settings[at] not in settings[at + 1 :]
    ]


def _on_the_machine(strategy: Strategy) -> Strategy:
    """Leave out what makes no difference to the machine."""
    return msgspec.structs.replace(strategy, checkpoints_back=0)


def _nothing_left(
    situation: Situation, standing: LadderPosition, skipped: Sequence[tuple[str, Refused]]
) -> Decision:
    """Continue as before if that brings the job further, or did so until lately; else stop."""
    kind, strategy = standing.current_failure.kind, standing.strategy
    without_progress = _without_progress(situation.tried)
    limit = 0
    if situation.nature is not Nature.DETERMINISTIC:
        limit = min(LAST_RETRIES, len(situation.tried) - 1)
    retries = without_progress <= limit and not unwanted(SAME_AGAIN, situation)
    if retries and not _ruled_out(strategy, situation, strategy):
        gets = "Earlier tries got" if without_progress else "Each try gets"
        return Decision(
            next=Next.AGAIN,
            strategy=strategy,
            remedy=SAME_AGAIN,
            reverted=standing.reverted,
            why=f"{gets} further, and no other workaround is known.",
            skipped=_untried(skipped),
        )
    used = dict.fromkeys(attempt.remedy for attempt in situation.tried if attempt.remedy)
    names = f" Tried: {', '.join(used)}." if used else ""
    known = f"No {'other ' if used else ''}workaround for {kind} is known here."
    left = [
        f" {name} was not tried: {refused.why}."
        for name, refused in skipped
        if refused.needs_consent
    ]
    return Decision(
        next=Next.END,
        exhausted=not (unwanted(SAME_AGAIN, situation) or situation.crashed_machine),
        reverted=standing.reverted,
        why=("The cause is not known." if kind == FailureKind.UNKNOWN else known)
        + names
        + "".join(left),
        skipped=_untried(skipped),
    )


def _untried(skipped: Sequence[tuple[str, Refused]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, refused.why) for name, refused in skipped if not refused.was_tried)


def _why_reverted(situation: Situation, standing: LadderPosition) -> str:
    if not standing.reverted:
        return ""
    kind = situation.failure.kind
    led = f"led to {kind}" if kind != standing.current_failure.kind else "did not help"
    return f"{standing.reverted} {led} and was reverted. "


def _reason(remedy: Remedy, before: Strategy, strategy: Strategy) -> str:
    if remedy.id == SAME_AGAIN:
        return MAY_BE_TRANSIENT
    change = describe_changes(before, strategy)
    return f"{remedy.title}{f' ({change})' if change else ''}."
