"""The CPU as well as it can be made: what is tried, and what is taken.

Each setting is tried by itself on top of what has won so far, and kept only if it is faster by more
than chance. None of them changes the script. All come with subnormal numbers taken as 0: that is no
faster in a short trial, but gradients that vanish as a model learns make a CPU up to 50 times
slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from rocsteady.model import Strategy, Value
from rocsteady.planner.trial_result import TrialResult

THREADS = "OMP_NUM_THREADS"
# glibc gives freed memory back to the system, which clears it before the next batch has it again.
KEEP_FREED = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
BOUND = {"OMP_PROC_BIND": "true"}
WORTH = 1.04  # times as fast; less is not told from chance by trials of some seconds
FLUSHED = "flush_denormal"
FLUSHED_TOLD = "numbers below 1e-38 are treated as 0: they can make a CPU up to 50 times slower"
AGAIN = "unchanged, second trial"
OTHER_NUMBERS = "the forward pass runs in bf16, so results differ"


class Tuned(Value, frozen=True, kw_only=True):
    """What won, and what came of each."""

    strategy: Strategy
    tried: TrialResult
    names: tuple[str, ...] = ()  # of the settings that won
    changes: str = ""  # what is other in the result; "": nothing but the order of sums
    lines: tuple[str, ...] = ()  # "compiled: 1.31 times"


def settings(base: Strategy, cores: int) -> Iterator[tuple[str, Strategy]]:
    """Yield changes that leave the numbers as they are, those that gain most first."""
    base = replace(base, flush_denormal=True)

    def having(**variables: str) -> Strategy:
        return replace(base, variables={**base.variables, **variables})

    yield "freed memory kept", having(**KEEP_FREED)
    yield "compiled", replace(base, compile=True)
    if cores > 1:
        yield "threads bound", having(**BOUND)
        yield "1 thread", having(**{THREADS: "1"})


def tune(
    base: Strategy,
    first: TrialResult,
    cores: int,
    attempt: Callable[[Strategy], TrialResult | None],
) -> tuple[Tuned, ...]:
    """Try each setting on what has won so far; ``attempt`` returns None when time is up.

    Returns what won with the same numbers, and what won with others if that is faster.
    """
    best = Tuned(strategy=base, tried=first)
    made: list[tuple[str, TrialResult]] = []
    for number in range(len(list(settings(base, cores)))):
        name, strategy = list(settings(best.strategy, cores))[number]
        result = attempt(strategy)
        if result is None:
            return (_told(best),)
        made.append((name, result))
        best = _better(best, name, result)
    best = _confirmed(best, Tuned(strategy=base, tried=first), made, attempt)
    cast = attempt(replace(best.strategy, flush_denormal=True, autocast="bf16"))
    if cast is None:
        return (_told(best),)
    other = _better(best, "bf16 (autocast)", cast)
    if other.strategy == best.strategy:
        return (_told(other),)
    return _told(best), _told(replace(other, changes=OTHER_NUMBERS))


def _told(tuned: Tuned) -> Tuned:
    """Say what comes with every setting."""
    if not tuned.strategy.flush_denormal or FLUSHED in tuned.tried.idle:
        return tuned
    return replace(tuned, lines=(*tuned.lines, FLUSHED_TOLD))


def _better(best: Tuned, name: str, result: TrialResult) -> Tuned:
    """Take a result if it is faster; tell of it in any case."""
    lines = (*best.lines, f"{name}: {_came_of(result, best.tried)}")
    if not _is_faster(result, best.tried):
        return replace(best, lines=lines)
    names = (*best.names, name)
    return Tuned(strategy=result.strategy, tried=result, names=names, lines=lines)


def _confirmed(
    best: Tuned,
    base: Tuned,
    made: Sequence[tuple[str, TrialResult]],
    attempt: Callable[[Strategy], TrialResult | None],
) -> Tuned:
    """Try the first again after the last: the machine itself may be faster or slower by now."""
    again = attempt(base.strategy)
    if again is None or not again.works or again.pace is None:
        return best
    lines = (*best.lines, f"{AGAIN}: {_came_of(again, base.tried)}")
    slower, faster = sorted((base.tried, again), key=_rate)
    chance = _rate(faster) / _rate(slower) if _rate(slower) else 1.0  # changed nothing but the time
    if best.strategy != base.strategy:
        if _is_faster(best.tried, faster, chance):
            return replace(best, lines=lines)
        return replace(base, tried=again, lines=lines)
    for name, result in sorted(made, key=lambda each: -_rate(each[1])):
        if _is_faster(result, faster, chance):
            return Tuned(strategy=result.strategy, tried=result, names=(name,), lines=lines)
    return replace(best, tried=again)


def _rate(result: TrialResult) -> float:
    return result.pace.rate if result.pace else 0.0


def _is_faster(result: TrialResult, than: TrialResult, chance: float = 1.0) -> bool:
    if result.pace is None or not result.works or set(result.idle) - {FLUSHED}:
        return False
    return than.pace is None or result.pace.rate > than.pace.rate * max(WORTH, chance)


def _came_of(result: TrialResult, than: TrialResult) -> str:
    if result.failure:
        return f"failed, {result.failure}"
    if set(result.idle) - {FLUSHED}:
        return "no effect on this script"
    if result.pace is None or than.pace is None:
        return "no steps were measured"
    return f"{result.pace.rate / than.pace.rate:.2f} times"
