"""Start DataLoader workers from a clean server process: they inherit no lock that is held."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.loader_start_method import clean_workers
from rocsteady.remedies.preconditions import without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="loader-forkserver",
    title="DataLoader workers from a fork server",
    answers=("hang-in-loader",),
    cost="slower worker startup, and memory that fork would have shared",
    rank=50,
    sources=("pytorch/pytorch#130610", "meta-pytorch/torchrec#2427"),
    evidence="spawn, which starts workers just as cleanly, is confirmed in the first thread",
    when_not=(
        "Scripts whose dataset, collate_fn or worker_init_fn cannot be pickled, or whose main"
        " module has no guard; and torch for ROCm, where hipMalloc has failed under a fork"
        " server: spawn is used instead."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Change how workers are started."""
    if not without_rocm(situation):
        return Refused(why="hipMalloc has failed under a fork server; spawn is used instead")
    return clean_workers(situation, "forkserver")
