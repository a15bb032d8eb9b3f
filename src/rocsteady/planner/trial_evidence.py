"""What the attempts of a trial show of a strategy, and how that is said."""

from __future__ import annotations

from collections.abc import Iterable

from rocsteady.knowledge.failures import Whose, load_failures
from rocsteady.planner.completion import FailureHistory
from rocsteady.planner.trial_result import TrialResult
from rocsteady.wording import duration, plural

TRIAL = "trial:"  # what a trial that was cut short is said with


def last_of_each_strategy(results: Iterable[TrialResult]) -> list[TrialResult]:
    """Return the last of each strategy; one that was cut short says nothing against a failure."""
    last: list[TrialResult] = []
    for result in results:
        same = [number for number, each in enumerate(last) if each.strategy == result.strategy]
        if not same:
            last.append(result)
        elif result.works or result.failure:
            last[same[0]] = result
    return last


def survived(result: TrialResult) -> bool:
    """Tell a failure that a fresh process gets over: it came some way and left a checkpoint."""
    if (
        result.pace is None
        or not result.resumes
        or not (result.saves or result.watched.checkpoints)
    ):
        return False
    kind = load_failures().kinds.get(result.failure)
    return kind is not None and kind.whose in (Whose.DEVICE, Whose.LOADER, Whose.MEMORY)


def is_of_loaders(kind: str) -> bool:
    """Tell whether a kind of failure is one of loader processes."""
    known = load_failures().kinds.get(kind)
    return known is not None and known.whose is Whose.LOADER


def failed(result: TrialResult) -> str:
    """Say what came of a trial that did not get on."""
    if not result.failure:
        made = f"no step after step {result.step:,}" if result.step else "no step"
        return f"{TRIAL} {made} in {duration(result.seconds)}"
    at = f" at step {result.step:,}" if result.step else ""
    return f"trial failed with {result.failure}{at}"


def trial_history(results: Iterable[TrialResult], result: TrialResult) -> FailureHistory:
    """Count what a trial showed of one strategy."""
    own = [each for each in results if each.strategy == result.strategy]
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


def rests_on(result: TrialResult, seen: FailureHistory) -> tuple[str, ...]:
    """Say what an option is based on: the trial, and the failures that were seen or not."""
    pace = result.pace
    measured = f"trial, {pace.steps:,} steps in {duration(pace.seconds)}" if pace else "trial"
    split = result.watched.batch_split
    if split is not None and split.micro_batch < split.batch:  # rocsteady.Loop found what fits
        measured += f", batches of {split.batch} in micro-batches of {split.micro_batch}"
    if seen.failures:
        kinds = ", ".join(dict.fromkeys(seen.kinds))
        count = plural(seen.failures, "failure")
        after = "; a new process resumes from the checkpoint" if result.resumes else ""
        return (f"{measured}; {count} in {seen.steps:,} steps here ({kinds}){after}",)
    if seen.steps:
        return (f"{measured}; 0 failures in {seen.steps:,} steps",)
    return (measured,)
