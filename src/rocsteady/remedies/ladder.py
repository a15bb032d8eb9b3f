"""From what failed, where and after what, to the next strategy or to an end. A pure function.

One reversible change at a time, cheapest first. What may be chance is tried again once; the same
failure at the same step twice is not chance. A remedy that did not move the failure is taken back
before the next is tried. Progress refills the budget. It always ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from rocsteady.knowledge.values import Fix
from rocsteady.model import Strategy, Value
from rocsteady.remedies.catalog import RUNGS
from rocsteady.remedies.difference import changed, told
from rocsteady.remedies.history import BROUGHT_ABOUT, Standing, same, stand, strategies_tried
from rocsteady.remedies.remedy import ALREADY_TRIED, Refused, Rung
from rocsteady.remedies.rungs.retry import REMEDY as RETRY
from rocsteady.remedies.situation import DETERMINISTIC, FailedAttempt, Situation

MOST_BARREN = 2  # attempts in a row without progress, where there was some and no remedy is left
SCRIPT_ERROR, WENT_DOWN, UNKNOWN = "script-error", "machine-went-down", "unknown"


class Proposal(Value, frozen=True, kw_only=True):
    """What comes next."""

    strategy: Strategy | None  # None: stop
    remedy: str = ""  # that leads to it
    taken_back: str = ""  # a remedy that did not move the failure, and is undone
    why: str  # one or two sentences for people
    passed_over: tuple[tuple[str, str], ...] = ()  # remedies for this failure, and why not
    person: Fix | None = None  # what somebody must do
    fallback: int = 0  # the option of the plan that it is; 0: no other option
    exhausted: bool = False  # nothing is known to try, which says nothing against the same again


def climb(situation: Situation) -> Proposal:
    """Choose the next strategy, or stop."""
    standing = stand(situation)
    blamed = bool(standing.taken_back) and situation.failure.kind in BROUGHT_ABOUT
    if not blamed and (end := _at_once(situation)):
        return end
    if why := _spent(situation):
        return Proposal(strategy=None, why=why)
    if not blamed and (again := _chance_below_a_remedy(situation, standing)):
        return again
    return _next_rung(situation, standing)


def _at_once(situation: Situation) -> Proposal | None:
    """End where no setting can help."""
    failure = situation.failure
    if situation.person is not None:
        why = f"{failure.title or failure.kind}: this needs a person."
        return Proposal(strategy=None, why=why, person=situation.person)
    if failure.kind == SCRIPT_ERROR:
        return Proposal(strategy=None, why="The script raised an error that no setting can fix.")
    return None


def _spent(situation: Situation) -> str:
    """Say which budget is used up; "" if none is."""
    tried, budget = situation.tried, situation.budget
    barren = _barren(tried)
    kinds = [entry.failure.kind for entry in tried[len(tried) - barren :]]
    if len(tried) >= budget.attempts:
        return f"The limit of {len(tried)} attempts is reached."
    if barren >= budget.barren:
        return f"The last {barren} attempts made no progress."
    if kinds.count(situation.failure.kind) >= budget.tries:
        return f"The last {budget.tries} attempts that ended this way made no progress."
    return ""


def _barren(tried: Sequence[FailedAttempt]) -> int:
    """Count the attempts since the last one that came further."""
    return next((n for n, entry in enumerate(reversed(tried)) if entry.progressed), len(tried))


def _chance_below_a_remedy(situation: Situation, standing: Standing) -> Proposal | None:
    """Try a remedy once more if what ended it may be chance, and not what it was meant for."""
    if not standing.taken_back or same(situation.failure.fingerprint, standing.answering):
        return None
    if _unwanted(RETRY.id, situation):
        return None
    strategy = RUNGS[RETRY.id].apply(situation)
    if isinstance(strategy, Refused) or _against(strategy, situation, situation.strategy):
        return None
    return Proposal(
        strategy=strategy, remedy=RETRY.id, why="This may be transient; retrying without changes."
    )


def _next_rung(situation: Situation, standing: Standing) -> Proposal:
    """Take the cheapest remedy that is right here, from the strategy that is kept."""
    here = _as_answered(situation, standing)
    passed_over: list[tuple[str, str]] = []
    for name, rung in _ordered(here):
        result = _tried_on(name, rung, here, situation)
        if isinstance(result, Refused):
            passed_over.append((name, result.why))
            continue
        return Proposal(
            strategy=result,
            remedy=name,
            taken_back=standing.taken_back,
            why=_undone(situation, standing) + _reason(rung, standing.kept, result),
            passed_over=tuple(passed_over),
        )
    return _exhausted(situation, standing, tuple(passed_over))


def _as_answered(situation: Situation, standing: Standing) -> Situation:
    """Return the situation with the kept strategy and the failure that is to be answered."""
    here = msgspec.structs.replace(situation, strategy=standing.kept)
    print_ = standing.answering
    if same(print_, situation.failure.fingerprint):
        return here
    failure = msgspec.structs.replace(situation.failure, kind=print_.kind, fingerprint=print_)
    return msgspec.structs.replace(here, failure=failure, nature=DETERMINISTIC)


def _ordered(here: Situation) -> Iterator[tuple[str, Rung]]:
    """Yield what answers the failure: what mended this script here before, then cheapest first."""
    answers = [item for item in RUNGS.items() if item[1].REMEDY.answer_to(here.failure.kind)]
    yield from sorted(answers, key=lambda item: item[0] not in here.worked_here)


def _tried_on(name: str, rung: Rung, here: Situation, situation: Situation) -> Strategy | Refused:
    """Apply a remedy; all that speaks against it counts."""
    if why := _unwanted(name, here):
        return Refused(why=why)
    result = rung.apply(here)
    if isinstance(result, Refused):
        return result
    why = _against(result, situation, here.strategy)
    if not why and result != here.strategy:
        settings = [name for name in changed(here.strategy, result) if name in here.no_effect]
        if settings:
            why = f"{settings[0]} has no effect on this script"
        elif result in strategies_tried(here):
            why = ALREADY_TRIED
    return Refused(why=why) if why else result


def _unwanted(name: str, situation: Situation) -> str:
    if name in situation.deny:
        return "denied by --deny"
    return "not in --allow" if situation.allow and name not in situation.allow else ""


def _against(strategy: Strategy, situation: Situation, kept: Strategy) -> str:
    """Say why a strategy must not be run, whatever led to it; "" if it may be."""
    tried, print_ = situation.tried, situation.failure.fingerprint
    if _on_the_machine(strategy) in map(_on_the_machine, (*situation.deadly, *_took_down(tried))):
        return "the machine went down with these settings"
    ended = [entry for entry in tried if (entry.strategy, entry.failure) == (strategy, print_)]
    if strategy == kept and len(ended) > 1:
        return "the run failed twice at the same step"
    if any(one.failure == print_ and other.strategy == strategy for one, other in pairwise(tried)):
        return ALREADY_TRIED
    return ""


def _took_down(tried: Sequence[FailedAttempt]) -> Iterator[Strategy]:
    """Yield what the machine went down with; not what somebody had tried again all the same."""
    settings = [_on_the_machine(entry.strategy) for entry in tried]
    for at, entry in enumerate(tried):
        if entry.failure.kind == WENT_DOWN and settings[at] not in settings[at + 1 :]:
            yield entry.strategy


def _on_the_machine(strategy: Strategy) -> Strategy:
    """Leave out what makes no difference to the machine."""
    return msgspec.structs.replace(strategy, checkpoints_back=0)


def _exhausted(
    situation: Situation, standing: Standing, passed_over: tuple[tuple[str, str], ...]
) -> Proposal:
    """Go on as before if that brings the job further, or did so until lately; else stop."""
    kind, strategy = standing.answering.kind, standing.kept
    barren = _barren(situation.tried)
    most = 0 if situation.nature == DETERMINISTIC else min(MOST_BARREN, len(situation.tried) - 1)
    wanted = barren <= most and not _unwanted(RETRY.id, situation)
    if wanted and not _against(strategy, situation, strategy):
        gets = "Earlier attempts got" if barren else "Each attempt gets"
        return Proposal(
            strategy=strategy,
            remedy=RETRY.id,
            taken_back=standing.taken_back,
            why=f"{gets} further, and no other remedy is known.",
            passed_over=passed_over,
        )
    used = dict.fromkeys(entry.remedy for entry in situation.tried if entry.remedy)
    names = f" Tried: {', '.join(used)}." if used else ""
    known = f"No {'other ' if used else ''}remedy for {kind} is known here."
    return Proposal(
        strategy=None,
        exhausted=not (_unwanted(RETRY.id, situation) or situation.deadly),
        taken_back=standing.taken_back,
        why=("The cause is not known." if kind == UNKNOWN else known) + names,
        passed_over=passed_over,
    )


def _undone(situation: Situation, standing: Standing) -> str:
    if not standing.taken_back:
        return ""
    kind = situation.failure.kind
    led = f"led to {kind}" if kind != standing.answering.kind else "did not help"
    return f"{standing.taken_back} {led} and was reverted. "


def _reason(rung: Rung, kept: Strategy, strategy: Strategy) -> str:
    if rung.REMEDY.id == RETRY.id:
        return "This may be transient; retrying without changes."
    change = told(kept, strategy)
    return f"{rung.REMEDY.title}{f' ({change})' if change else ''}."
