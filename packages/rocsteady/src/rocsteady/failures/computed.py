"""The remedies that data cannot express: each computes its change from how the run stands.

What a person wants to know of them is in remedies.toml, like that of all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType

from msgspec.structs import replace

from rocsteady.doctor.knowledge.failures import Nature
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.machine.gpus import gfx_name
from rocsteady.failures.situation import Refused, Situation, strategies_tried
from rocsteady.model import FailureKind, Strategy

ALREADY_TRIED = "already tried"
CANNOT_RESUME = "no way to resume the script is known"
GFX_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"  # the form for one GPU has its number appended
_GFX_VERSION = re.compile(r"\s*(\d{1,2})\.(\d{1,3})\.(\d{1,3})", re.ASCII)


def retry(situation: Situation) -> Strategy | Refused:
    """Change nothing, once: a first failure is often chance."""
    kind, last = situation.failure.kind, situation.tried[-1]
    why, was_tried = "", False
    if kind == FailureKind.UNKNOWN:
        why = "" if last.progressed else "the cause is not known, and the retry made no progress"
    elif situation.nature is Nature.DETERMINISTIC:
        why = "the run would fail in the same way"
    elif _was_retried(situation):
        why, was_tried = ALREADY_TRIED, True
    elif (
        situation.nature is not Nature.TRANSIENT and not last.steps and not kind.startswith("hang")
    ):
        why = "the script failed before its first step"
    return Refused(why=why, was_tried=was_tried) if why else situation.strategy


def _was_retried(situation: Situation) -> bool:
    """Return whether this kind has had its retry; for a transient one, progress gives another."""
    tried = situation.tried
    if situation.nature is Nature.TRANSIENT:
        first = max((at for at, entry in enumerate(tried) if entry.progressed), default=0)
        tried = tried[first:]
    return any(
        after.remedy == "retry" and before.failure.kind == situation.failure.kind
        for before, after in pairwise(tried)
    )


def fresh_process(situation: Situation) -> Strategy | Refused:
    """Change only the process, as often as that brings the job further."""
    if not situation.can_resume:
        return Refused(why=CANNOT_RESUME)
    if not situation.checkpoints:
        return Refused(why="there is no checkpoint: every process would start at step 0")
    if any(
        entry.remedy == "fresh-process" and not entry.progressed
        for entry in situation.tried
        if entry.strategy == situation.strategy
    ):
        return Refused(why="the last new process made no progress")
    return situation.strategy


def checkpoint_back(situation: Situation) -> Strategy | Refused:
    if not situation.can_resume:
        return Refused(why=CANNOT_RESUME)
    back = situation.strategy.checkpoints_back + 1
    if situation.checkpoints <= back:
        return Refused(why="there is no older intact checkpoint")
    return replace(situation.strategy, checkpoints_back=back)


def unset_variable(situation: Situation) -> Strategy | Refused:
    """Unset the first harmful variable that is set and was not tried yet.

    Where a person asks for it, and nothing has failed, every harmful variable counts.
    """
    kind, before = situation.failure.kind, strategies_tried(situation)
    for each in harmful_variables():
        if (not kind or kind in each.failures) and each.harms(situation.environment):
            ours = dict(situation.strategy.variables)
            if each.name in ours:  # what an earlier remedy has set is given up
                del ours[each.name]
            else:
                ours[each.name] = None
            strategy = replace(situation.strategy, variables=ours)
            if strategy not in before:
                return strategy
    other = "other " if any(entry.remedy == "unset-variable" for entry in situation.tried) else ""
    return Refused(why=f"no {other}variable that is known to cause this is set")


def gfx_override_off(situation: Situation) -> Strategy | Refused:
    """Unset the override, the form for one GPU too, where that leaves code to run."""
    environment, ours = situation.environment, situation.strategy.variables
    name = next((name for name in sorted(environment) if name.startswith(GFX_OVERRIDE)), "")
    why = situation.lacks("rocr") or (not name and f"{GFX_OVERRIDE} is not set")
    why = why or _needed_override(situation, environment[name])
    return Refused(why=why) if why else replace(situation.strategy, variables={**ours, name: None})


def _needed_override(situation: Situation, override: str) -> str:
    """Return why the override has to stay; "" if torch has code for the GPU itself."""
    names, version = situation.gfx_names, _GFX_VERSION.fullmatch(override)
    torch = situation.machine.torch
    arches = situation.arches or (torch.arches if torch else ())
    if version and names:
        major, minor, stepping = map(int, version.groups())
        if {gfx_name(major * 10_000 + minor * 100 + stepping)} == set(names):
            return f"{override} is the version of {names[0]} itself"
    if not names or not arches:
        return "it is not known whether torch has code for the GPU itself"
    lacking = [name for name in names if name not in arches]
    return f"torch has no code for {', '.join(lacking)} itself" if lacking else ""


def loader_fewer_workers(situation: Situation) -> Strategy | Refused:
    """Halve the workers that are in effect; one, where their number is not known."""
    loader, workers = situation.loader, situation.strategy.workers
    if workers is None:
        workers = loader.workers if loader else 2
    if workers < 2:  # noqa: PLR2004 - half of one is none, which is another remedy
        return Refused(why="there is at most one worker")
    return replace(situation.strategy, workers=workers // 2)


def half_micro_batch(situation: Situation) -> Strategy | Refused:
    """Halve what was in effect in the attempt that failed."""
    split = situation.batch_split
    if split is None:
        return Refused(why="the script does not train through rocsteady_train.Loop")
    if not split.micro_batch:
        return Refused(why="the script does not declare the reduction of its loss to loop.step")
    if split.micro_batch == 1:
        return Refused(why="the micro-batch is already a single sample")
    return replace(situation.strategy, micro_batch=split.micro_batch // 2)


def single_gpu(situation: Situation) -> Strategy | Refused:
    """Keep one GPU: the first that did not fail by itself."""
    if situation.strategy.device == "cpu":
        return Refused(why="the run does not use GPUs")
    if situation.strategy.gpus is not None and len(situation.strategy.gpus) == 1:
        return Refused(why="the run already uses one GPU")
    if situation.ranks < 2 and situation.gpus < 2:  # noqa: PLR2004 - there is nothing to reduce
        return Refused(why="there is one rank and one GPU at most")
    seen = situation.strategy.gpus or tuple(range(max(situation.gpus, 1)))
    others = [gpu for rank, gpu in enumerate(seen) if rank != situation.failure.rank]
    return replace(situation.strategy, gpus=((*others, *seen)[0],))


COMPUTED: Mapping[str, Callable[[Situation], Strategy | Refused]] = MappingProxyType(
    {
        function.__name__.replace("_", "-"): function
        for function in (
            retry,
            unset_variable,
            gfx_override_off,
            loader_fewer_workers,
            half_micro_batch,
            fresh_process,
            checkpoint_back,
            single_gpu,
        )
    }
)
# What those that compute a number set, by which hosts tell each other what they have computed.
NUMBERED: Mapping[str, str] = MappingProxyType(
    {
        "loader-fewer-workers": "workers",
        "half-micro-batch": "micro_batch",
        "checkpoint-back": "checkpoints_back",
    }
)
