"""What came of the attempts of a trial, what that shows of a strategy, and how it is put."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from rocsteady.doctor.knowledge.failures import Component, load_failures
from rocsteady.hangs.heartbeat_pages import LoaderFacts, Size
from rocsteady.model import TRIAL, Observation, Outcome, ProbeOutcome, Strategy, Value
from rocsteady.plan.completion import FailureHistory
from rocsteady.plan.script_traces import ScriptTraces
from rocsteady.plan.trial import Measurement
from rocsteady.plan.values import Pace
from rocsteady.run.attempt_end import AttemptEnd
from rocsteady.run.strategy_history import no_effect
from rocsteady.store.values import RunStory
from rocsteady.wording import duration, plural

NO_MEMORY = "oom"  # what kinds of failure for want of memory begin with
CUT_SHORT = "trial:"  # what a trial that was cut short is said with


class TrialResult(Value, frozen=True, kw_only=True):
    """One attempt: a strategy, and its pace or its failure."""

    strategy: Strategy
    pace: Pace | None = None
    failure: str = ""  # its kind; "": it did not fail
    title: str = ""  # of the failure, one line
    place: str = ""
    hung: bool = False
    step: int = 0  # reached
    seconds: float = 0.0
    finished: bool = False  # by itself and well, before the trial was over
    idle: tuple[str, ...] = ()  # settings of the strategy that found nothing to act on
    stacks: tuple[tuple[str, ...], ...] = ()  # of the training thread, innermost first
    remedy: str = ""  # that led to the strategy
    total: int | None = None  # steps of the whole job, if the script or the job told
    size: Size | None = None
    loader: LoaderFacts | None = None
    resumes: bool = False  # there is a known way to go on from a checkpoint
    saves: int = 0  # checkpoints that were seen to be written
    watched: ScriptTraces = ScriptTraces()  # what it prints and writes

    @property
    def works(self) -> bool:
        """Tell whether it got on."""
        return not self.failure and (self.pace is not None or self.finished)


def tried(
    story: RunStory, trial: Measurement, *, is_over: bool, resumes: bool
) -> tuple[TrialResult, ...]:
    """Put together what is known of each attempt; ``is_over``: it was ended once that was known."""
    failures = {row.attempt: row.failure for row in story.failures}
    remedies = {row.attempt: row.what for row in story.decisions}
    totals = {bucket.attempt: bucket.total for bucket in story.progress}
    found = []
    for attempt in story.attempts:
        end = trial.ends.get(attempt.number)
        if end is None:
            continue
        failure = failures.get(attempt.number)
        found.append(
            TrialResult(
                strategy=attempt.strategy,
                pace=_of_its_device(trial.paces.get(attempt.number), attempt.strategy),
                failure=failure.kind if failure else "",
                title=failure.title if failure else "",
                place=failure.fingerprint.place if failure else "",
                hung=end.outcome in (Outcome.HUNG, Outcome.UNKILLABLE),
                step=end.last_step or 0,
                seconds=end.seconds,
                finished=end.exit is not None and end.exit.code == 0 and not is_over,
                idle=no_effect(end),
                stacks=tuple(trial.stacks),
                watched=trial.watched.get(attempt.number, ScriptTraces()),
                remedy=remedies.get(attempt.number - 1, ""),
                total=totals.get(attempt.number),
                size=trial.sizes.get(attempt.number),
                loader=end.loader,
                resumes=resumes,
                saves=_saves(end),
            )
        )
    return tuple(found)


def _saves(end: AttemptEnd) -> int:
    counts = [sum(beat.histogram.get("checkpoint", ())) for beat in end.heartbeats]
    return max(counts, default=0)


def _of_its_device(pace: Pace | None, strategy: Strategy) -> Pace | None:
    """Leave out what the GPU did where the training ran on the CPU: it was not the training's."""
    if pace is None or strategy.device != "cpu":
        return pace
    return replace(pace, gpu_busy=None, gpu_memory=None)


def observation(result: TrialResult, way: str, *, software: str, at: float) -> Observation:
    """Return what a trial showed, as the machine's memory keeps it."""
    outcome = ProbeOutcome.OK if result.works else ProbeOutcome.EXCEPTION
    if result.hung:
        outcome = ProbeOutcome.HANG
    elif result.failure.startswith(NO_MEMORY):
        outcome = ProbeOutcome.NO_MEMORY
    return Observation(
        probe=TRIAL,
        variant=way,
        outcome=outcome,
        tries=result.step,
        seconds=result.seconds,
        why=result.title,
        place=result.place,
        failure=result.failure,
        figures={"steps_per_second": result.pace.rate} if result.pace else {},
        software=software,
        at=at,
    )


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
    return kind is not None and kind.component in (
        Component.DEVICE,
        Component.LOADER,
        Component.MEMORY,
    )


def is_of_loaders(kind: str) -> bool:
    """Tell whether a kind of failure is one of loader processes."""
    known = load_failures().kinds.get(kind)
    return known is not None and known.component is Component.LOADER


def failed(result: TrialResult) -> str:
    """Say what came of a trial that did not get on."""
    if not result.failure:
        made = f"no step after step {result.step:,}" if result.step else "no step"
        return f"{CUT_SHORT} {made} in {duration(result.seconds)}"
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
    if split is not None and 0 < split.micro_batch < split.batch:  # Loop found what fits
        measured += f", batches of {split.batch} in micro-batches of {split.micro_batch}"
    if seen.failures:
        kinds = ", ".join(dict.fromkeys(seen.kinds))
        count = plural(seen.failures, "failure")
        after = "; a new process resumes from the checkpoint" if result.resumes else ""
        return (f"{measured}; {count} in {seen.steps:,} steps here ({kinds}){after}",)
    if seen.steps:
        return (f"{measured}; 0 failures in {seen.steps:,} steps",)
    return (measured,)
