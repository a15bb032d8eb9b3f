"""Where the time of a step goes, and what would help most.

By phase, as the page tells; the script's own Python is told from torch by looking at stacks. What a
change would gain is estimated by replaying the phases of a step with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rocsteady.evidence.pages import LoaderFacts
from rocsteady.plan import Limit, Pace
from rocsteady.planner.tried import Tried

LEAST_STACKS = 8  # fewer say nothing of shares
WORTH = 0.03  # a smaller share is not told
INSTALLED = ("site-packages/", "dist-packages/", "/lib/python", "python3.", "<")
SIMULATION = "simulation"  # the script's own Python
COMPUTE = ("compute", "backward", "optimizer")
MOST_WORKERS = 8
LEAST_LEFT = 0.02  # of a step; nothing is made more than 50 times as fast


def limits(tried: Tried, *, on_gpu: bool, loader: LoaderFacts | None, cores: int) -> list[Limit]:
    """Return the parts of a step, the largest first. Loader workers have ``cores``; 0: no more."""
    pace = tried.pace
    if pace is None or not pace.slowed_by:
        return []
    shares = shares_of(pace)
    own, where = _own_python(tried.stacks)
    ranks = _waiting_for_ranks(tried.stacks)
    parts = {
        "data": shares.get("data", 0.0),
        SIMULATION: own * (1 - shares.get("data", 0.0)),
        "other ranks": ranks,
        "checkpoint": shares.get("checkpoint", 0.0),
        "evaluate": shares.get("evaluate", 0.0),
        "compile": shares.get("compile", 0.0),
    }
    compute = sum(shares.get(phase, 0.0) for phase in COMPUTE)
    parts["compute"] = max(0.0, compute - parts[SIMULATION] - ranks)
    told = []
    for part, share in sorted(parts.items(), key=lambda item: -item[1]):
        if share >= WORTH:
            best, gain = _help(part, share, on_gpu=on_gpu, loader=loader, cores=cores)
            place = where if part == SIMULATION else ""
            told.append(Limit(part=part, share=share, where=place, best=best, gain=gain))
    return told


def shares_of(pace: Pace) -> dict[str, float]:
    """Return which share of a step each phase has; {} if nothing was told."""
    whole = sum(pace.slowed_by.values())
    return {phase: seconds / whole for phase, seconds in pace.slowed_by.items()} if whole else {}


def _own_python(stacks: Sequence[tuple[str, ...]]) -> tuple[float, str]:
    """Return the share of looks at which the script's own Python ran, and where it most often did.

    The interpreter runs own code if the innermost frame is not of an installed package.
    """
    if len(stacks) < LEAST_STACKS:
        return 0.0, ""
    own = [frames for frames in stacks if frames and not _installed(frames[0])]
    callers = Counter(_outermost_own(frames) for frames in own)
    where = callers.most_common(1)[0][0] if callers else ""
    return len(own) / len(stacks), where


def _outermost_own(frames: tuple[str, ...]) -> str:
    """Name the function that main calls: what is below it belongs to it."""
    own = [frame for frame in reversed(frames) if not _installed(frame)]
    below_main = [frame for frame in own if not frame.startswith(("<module>", "main "))]
    return (below_main or own)[0]


def _waiting_for_ranks(stacks: Sequence[tuple[str, ...]]) -> float:
    if len(stacks) < LEAST_STACKS:
        return 0.0
    waiting = [
        frames for frames in stacks if frames and "torch/distributed/" in "".join(frames[:3])
    ]
    return len(waiting) / len(stacks)


def _installed(frame: str) -> bool:
    return any(part in frame for part in INSTALLED)


def _help(
    part: str, share: float, *, on_gpu: bool, loader: LoaderFacts | None, cores: int
) -> tuple[str, float]:
    """Say what would help most with one part, and by how much, by replaying the phases."""
    rest = max(1 - share, LEAST_LEFT)
    if part == "data":
        return _more_loading(share, loader, cores)
    if part == SIMULATION:
        gain = 1 / max(share, rest) if min(share, rest) > 0 else 1.0
        return "the script's own Python beside the training, in a process of its own", gain
    if part == "checkpoint":
        return "rocsteady.Checkpointer, which writes while the training goes on", 1 / rest
    if part == "evaluate":
        return "validation half as often", 1 / (1 - share / 2)
    if part == "compute":
        return ("" if on_gpu else "a GPU, at most"), (1.0 if on_gpu else 1 / rest)
    return "", 1.0


def _more_loading(share: float, loader: LoaderFacts | None, cores: int) -> tuple[str, float]:
    """Replay a step with more workers: it takes as long as the slower of loading and training.

    Without workers a step loads and then trains. With some it waits for what they have not yet
    loaded: a batch takes them as long as the whole step.
    """
    rest = max(1 - share, LEAST_LEFT)
    less = "faster storage, or less work a sample", 1 / rest
    if not cores:
        return less
    workers = loader.workers if loader else 0
    wanted = min(max(cores, workers + 1), MOST_WORKERS)
    loading = share / wanted if workers == 0 else workers / wanted
    gain = 1 / max(rest, loading)
    more = f"{wanted} loader workers" if workers == 0 else f"{wanted} loader workers, not {workers}"
    return (more, gain) if gain > 1.02 else less  # noqa: PLR2004
