"""Where the time of a step goes, and what would help most.

By phase, as the page tells; the script's own Python is told from torch by looking at stacks. What a
change would gain is estimated by replaying the phases of a step with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rocsteady.model import LoaderFacts
from rocsteady.plan.trials import COMPUTE, TrialResult
from rocsteady.plan.values import Limit, Pace

LOADER = "torch/utils/data/"  # what is below it is the phase "data", whoever's code it is
LEAST_STACKS = 8  # fewer say nothing of shares
UNSURE = 0.1  # of a step, at most, between the least and the most that own code can have
WORTH = 0.03  # a smaller share is not told
INSTALLED = ("site-packages/", "dist-packages/", "/lib/python", "python3.", "(<")
OWN_CODE, SIMULATION = "own code", "simulation"  # the script's own Python, by what it does there
NOT_TOLD_APART = "compute and own code"  # too few looks at stacks, or too many while evaluating
_SIMULATES = re.compile(r"(?i)simul|rollout|episode|physics|\benv|_env\b")
MAX_WORKERS = 8
MAX_SPEEDUP = 100.0  # times as fast as a CPU: further nobody believes
PARAMETERS = 10_000  # of a model, for each time that a GPU is as fast; our guess
WORTH_SAYING = 1.1  # times as fast; less is no advice
LEAST_LEFT = 0.02  # of a step; nothing is made more than 50 times as fast


def limits(
    tried: TrialResult, *, on_gpu: bool, loader: LoaderFacts | None, cores: int
) -> list[Limit]:
    """Return the parts of a step, the largest first. Loader workers have ``cores``; 0: no more."""
    pace = tried.pace
    if pace is None or not pace.slowed_by:
        return []
    shares = shares_of(pace)
    parts = {part: shares.get(part, 0.0) for part in ("data", "checkpoint", "evaluate", "compile")}
    compute = sum(shares.get(phase, 0.0) for phase in COMPUTE)
    where, own_part = "", OWN_CODE
    stacks = [frames for frames in tried.stacks if not any(LOADER in each for each in frames)]
    least, most, seen_in = _own_python(stacks, tried.elsewhere)
    told_apart = len(stacks) >= LEAST_STACKS and (most - least) * compute <= UNSURE
    if told_apart:
        where, own_part = seen_in, SIMULATION if _SIMULATES.search(seen_in) else OWN_CODE
        parts[own_part] = (least + most) / 2 * compute
        waiting = ["torch/distributed/" in "".join(frames[:3]) for frames in stacks]
        parts["other ranks"] = sum(waiting) / len(stacks) * compute
        parts["compute"] = max(0.0, compute - parts[own_part] - parts["other ranks"])
    else:
        parts[NOT_TOLD_APART] = compute
    found = []
    for part, share in sorted(parts.items(), key=lambda item: -item[1]):
        if share >= WORTH:
            best, gain = _help(part, share, on_gpu=on_gpu, loader=loader, cores=cores)
            if part == "compute" and tried.size:
                gain = min(gain, 1 / (1 - share + share / max_speedup(tried.size.parameters)))
                best = best if gain > WORTH_SAYING else ""
            place = where if part == own_part else ""
            found.append(Limit(part=part, share=share, where=place, best=best, gain=gain))
    return found


def own_share(limits: Sequence[Limit]) -> float | None:
    """Return the share of the script's own Python, which no card speeds up; None: not known."""
    if any(it.part == NOT_TOLD_APART for it in limits):
        return None
    return next((it.share for it in limits if it.part in (OWN_CODE, SIMULATION)), 0.0)


def max_speedup(parameters: int | None) -> float:
    """Return how many times as fast as a CPU a GPU computes at most, by the size of the model."""
    if parameters is None:
        return MAX_SPEEDUP
    return min(max(parameters / PARAMETERS, 1.0), MAX_SPEEDUP)


def shares_of(pace: Pace) -> dict[str, float]:
    whole = sum(pace.slowed_by.values())
    return {phase: seconds / whole for phase, seconds in pace.slowed_by.items()} if whole else {}


def _own_python(stacks: Sequence[tuple[str, ...]], elsewhere: float) -> tuple[float, float, str]:
    """Return the least and the most of a step that is the script's own Python, and where it is.

    The interpreter runs own code if the innermost frame is not of an installed package. Of the
    looks ``elsewhere``, at validation or saving, nobody knows which they are.
    """
    own = [frames for frames in stacks if frames and not _installed(frames[0])]
    callers = Counter(_outermost_own(frames) for frames in own)
    where = callers.most_common(1)[0][0] if callers else ""
    share, training = len(own) / max(len(stacks), 1), max(1 - elsewhere, LEAST_LEFT)
    return max(0.0, share - elsewhere) / training, min(1.0, share / training), where


def _outermost_own(frames: tuple[str, ...]) -> str:
    """Name the function that main calls: what is below it belongs to it."""
    own = [frame for frame in reversed(frames) if not _installed(frame)]
    below_main = [frame for frame in own if not frame.startswith(("<module>", "main "))]
    return (below_main or own)[0]


def _installed(frame: str) -> bool:
    return any(part in frame for part in INSTALLED)


def _help(
    part: str, share: float, *, on_gpu: bool, loader: LoaderFacts | None, cores: int
) -> tuple[str, float]:
    """Return what would help most with one part, and how much faster a step would be."""
    rest = max(1 - share, LEAST_LEFT)
    if part == "data":
        return _more_loading(share, loader, cores)
    if part in (OWN_CODE, SIMULATION):
        gain = 1 / max(share, rest) if min(share, rest) > 0 else 1.0
        return "running the script's own Python code in a separate process", gain
    if part == "checkpoint":
        return "rocsteady_train.Checkpointer, which writes while training continues", 1 / rest
    if part == "evaluate":
        return "validating half as often", 1 / (1 - share / 2)
    if part == "compute":
        return ("" if on_gpu else "a GPU"), (1.0 if on_gpu else 1 / rest)
    return "", 1.0


def _more_loading(share: float, loader: LoaderFacts | None, cores: int) -> tuple[str, float]:
    """Replay a step with more workers: it takes as long as the slower of loading and training.

    Without workers a step loads and then trains. With some it waits for what they have not yet
    loaded: a batch takes them as long as the whole step.
    """
    rest = max(1 - share, LEAST_LEFT)
    less = "faster storage, or less work per sample", 1 / rest
    workers = loader.workers if loader else 0
    wanted = min(cores, MAX_WORKERS)
    if wanted <= workers:
        return less
    loading = share / wanted if workers == 0 else workers / wanted
    gain = 1 / max(rest, loading)
    more = f"{wanted} loader workers" if workers == 0 else f"{wanted} loader workers, not {workers}"
    return (more, gain) if gain > 1.02 else less  # noqa: PLR2004
