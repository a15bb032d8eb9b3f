"""Start each DataLoader worker as a new interpreter: it inherits no lock that is held."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.loader_start_method import clean_workers
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="loader-spawn",
    title="DataLoader workers started by spawn",
    answers=("hang-in-loader",),
    cost="seconds for each worker at each start, and memory that fork would have shared",
    rank=51,
    sources=("pytorch/pytorch#130610", "ROCm/Megatron-LM#17", "facebookresearch/ClassyVision#607"),
    evidence=(
        "confirmed in the first thread, recommended by AMD in the second; in the third, only"
        " fork or no workers helped"
    ),
    when_not=(
        "Scripts whose dataset, collate_fn or worker_init_fn cannot be pickled, or whose main"
        " module has no guard and would start the training again in every worker."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Change how workers are started."""
    if any(entry.strategy.worker_context == "forkserver" for entry in situation.tried):
        return Refused(why="a fork server, which starts workers just as cleanly, was tried")
    return clean_workers(situation, "spawn")
