"""DataLoader workers that inherit nothing: what fork server and spawn have in common."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused
from rocsteady.remedies.situation import Situation


def clean_workers(situation: Situation, context: str) -> Strategy | Refused:
    """Start workers otherwise than by fork, where dataset and main module bear it."""
    why = _against(situation)
    if why:
        return Refused(why=why)
    return msgspec.structs.replace(situation.strategy, worker_context=context)


def no_workers(situation: Situation) -> bool:
    """Tell whether every loader is known to load in the training's own process."""
    loader, workers = situation.loader, situation.strategy.workers
    return workers == 0 or (workers is None and loader is not None and not loader.workers)


def _against(situation: Situation) -> str:
    loader, strategy = situation.loader, situation.strategy
    context = strategy.worker_context or (loader.context if loader else "")
    if situation.machine.system.os == "windows":
        return "Windows always starts workers with spawn"
    if context in ("forkserver", "spawn"):
        return f"workers already start with {context}"
    if no_workers(situation):
        return "there are no workers"
    if loader and loader.pickles is False:
        return "dataset, collate_fn or worker_init_fn cannot be pickled"
    if loader and loader.main_guarded is False:
        return "the main module has no guard: every worker would start the training again"
    return ""
