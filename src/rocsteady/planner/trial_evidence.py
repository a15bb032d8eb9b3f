"""What the attempts of a trial show of a strategy, and how that is said."""

from __future__ import annotations

from collections.abc import Iterable

from rocsteady.knowledge.failures import Whose, load_failures
from rocsteady.planner.circumstances import key
from rocsteady.planner.completion import FailureHistory
from rocsteady.planner.trial_result import TrialResult
from rocsteady.wording import duration, plural

TRIAL = "trial:"  # what a trial that was cut short is said with


def by_strategy(results: Iterable[TrialResult]) -> dict[str, TrialResult]:
    """Return the last of each strategy; one that was cut short says nothing against a failure."""
    last: dict[str, TrialResult] = {}
    for one in results:
        name = key(one.strategy)
        if one.works or one.failure or name not in last:
            last[name] = one
    return last


def survived(one: TrialResult) -> bool:
    """Tell a failure that a fresh process gets over: it came some way and left a checkpoint."""
    if one.pace is None or not one.resumes or not (one.saves or one.watched.checkpoints):
        return False
    kind = load_failures().kinds.get(one.failure)
    return kind is not None and kind.whose in (Whose.DEVICE, Whose.LOADER, Whose.MEMORY)


def is_of_loaders(kind: str) -> bool:
    """Tell whether a kind of failure is one of loader processes."""
    known = load_failures().kinds.get(kind)
    return known is not None and known.whose is Whose.LOADER


def failed(one: TrialResult) -> str:
    """Say what came of a trial that did not get on."""
    if not one.failure:
        made = f"no step after step {one.step:,}" if one.step else "no step"
        return f"{TRIAL} {made} in {duration(one.seconds)}"
    at = f" at step {one.step:,}" if one.step else ""
    return f"trial failed with {one.failure}{at}"


def trial_history(results: Iterable[TrialResult], one: TrialResult) -> FailureHistory:
    """Count what a trial showed of one strategy."""
    own = [each for each in results if each.strategy == one.strategy]
    kinds = tuple(each.failure for each in own if each.failure)
    return FailureHistory(
        failures=len(kinds),
        seconds=sum(each.seconds for each in own),
        steps=sum(each.step for each in own),
        kinds=kinds,
    )


def together(first: FailureHistory, second: FailureHistory) -> FailureHistory:
    """Add up two histories of a strategy."""
    return FailureHistory(
        failures=first.failures + second.failures,
        seconds=first.seconds + second.seconds,
        steps=first.steps + second.steps,
        kinds=first.kinds + second.kinds,
    )


def rests_on(one: TrialResult, seen: FailureHistory) -> tuple[str, ...]:
    """Say what an option is based on: the trial, and the failures that were seen or not."""
    pace = one.pace
    measured = f"trial, {pace.steps:,} steps in {duration(pace.seconds)}" if pace else "trial"
    split = one.watched.batch_split
    if split is not None and split.micro_batch < split.batch:  # rocsteady.Loop found what fits
        measured += f", batches of {split.batch} in micro-batches of {split.micro_batch}"
    if seen.failures:
        kinds = ", ".join(dict.fromkeys(seen.kinds))
        count = plural(seen.failures, "failure")
        after = "; a new process resumes from the checkpoint" if one.resumes else ""
        return (f"{measured}; {count} in {seen.steps:,} steps here ({kinds}){after}",)
    if seen.steps:
        return (f"{measured}; 0 failures in {seen.steps:,} steps",)
    return (measured,)
