"""Filling a state from a checkpoint that is whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import torch

from rocsteady_train.checkpoints.folder import (
    BrokenError,
    CheckpointError,
    Tensor,
    read_manifest,
    read_plan,
)
from rocsteady_train.checkpoints.state_tree import StateParts, put_together, tensor_names
from rocsteady_train.checkpoints.tensor_files import DTYPES, is_distributed
from rocsteady_train.loop import single_process


def fill(  # noqa: PLR0913 - each is passed by name
    state: Mapping[str, Any],
    path: Path,
    *,
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    per_rank: Collection[str],
    group: Any,  # noqa: ANN401 - of torch.distributed
) -> None:
    """Fill a state: ``shared`` and ``own`` are skeletons, of all ranks and of this one."""
    try:
        known = read_plan(path, read_manifest(path))
    except BrokenError as error:
        raise CheckpointError(f"{path} {error}") from None
    wanted: dict[str, Any] = {}
    filled: dict[str, Any] = {}
    fresh = {name: state_of(value) for name, value in state.items()}
    _compare(path, shared, state, fresh)
    for name, at_hand in fresh.items():

        def tensor(path: str, at_hand: Any, owner: Any = state[name]) -> Any:  # noqa: ANN401
            wanted[path] = _room(path, known[path], at_hand, owner)
            return wanted[path]

        filled[name] = put_together((own if name in per_rank else shared)[name], tensor, at_hand)
    _load(path, known, wanted, group)
    for name, value in state.items():
        if hasattr(value, "load_state_dict"):
            _plain(value).load_state_dict(filled[name])
        else:
            value.clear()
            value.update(filled[name])


def _load(path: Path, plan: Mapping[str, Tensor], wanted: dict[str, Any], group: Any) -> None:  # noqa: ANN401
    failed: tuple[type[BaseException], ...] = (OSError,)
    try:
        if group is None and single_process.all_plain(wanted.values()):
            single_process.load(path, plan, wanted)
            return
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415 - takes as long as torch itself

        from rocsteady_train.checkpoints.dcp_storage import (  # noqa: PLC0415
            CheckpointReader,
            LoadPlanner,
            load_alone,
        )

        failed = (OSError, dcp.api.CheckpointException)
        reader = CheckpointReader(path)
        if group is None:
            load_alone(wanted, reader)
        else:
            dcp.load(wanted, storage_reader=reader, planner=LoadPlanner(), process_group=group)
    except failed as error:
        raise CheckpointError(f"{path} could not be loaded: {reason(error)}") from error


def state_of(value: Any) -> Any:  # noqa: ANN401 - of any class
    """Return what is to be kept of an entry of a state."""
    value = _plain(value)
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, MutableMapping):
        return value
    raise CheckpointError(
        f"{type(value).__name__} has no state_dict and is no dict: it cannot be in a checkpoint"
    )


def reason(error: BaseException) -> str:
    """Return in one line why something failed; DCP hides the reason in a table of ranks."""
    failures = getattr(error, "failures", None)
    if failures:
        error = next(iter(failures.values()))[0]
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, CheckpointError) and text else f"{type(error).__name__}: {text}"
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - of any class
    """Return the module that torch.compile was given: compiled or not, it is the same model."""
    return getattr(value, "_orig_mod", value)


def _compare(
    path: Path, saved: Mapping[str, Any], state: Mapping[str, Any], fresh: Mapping[str, Any]
) -> None:
    """See to it that a checkpoint is one of this training, before anything is changed."""
    for name, value in state.items():
        if name not in saved:
            raise CheckpointError(f"{path} has no {name!r}: it is of another training")
        if isinstance(value, torch.nn.Module):
            parts = StateParts()
            parts.take(fresh[name], name)
            there, here = tensor_names(saved[name]), parts.tensors.keys()
            for text, names in (("has", there - here), ("does not have", here - there)):
                if names:
                    some = ", ".join(sorted(names)[:3])
                    raise CheckpointError(f"{path} is of another model: it {text} {some}")
        if isinstance(value, torch.optim.Optimizer):
            try:
                groups, ours = _group_sizes(saved[name]), _group_sizes(fresh[name])
            except (KeyError, TypeError):
                raise CheckpointError(f"{path} has a {name!r} that is no optimizer's") from None
            if groups != ours:
                raise CheckpointError(
                    f"{path} is of another model: {name!r} has groups of {groups} parameters there"
                    f" and of {ours} here"
                )


def _group_sizes(state: Mapping[str, Any]) -> list[int]:
    return [len(group["params"]) for group in state["param_groups"]]


def _room(name: str, known: Tensor, at_hand: Any, owner: Any) -> Any:  # noqa: ANN401
    """Return a tensor to load into: the one at hand, or a new one that is split as it should be."""
    dtype = next(dtype for dtype, text in DTYPES.items() if text == known.dtype)
    if isinstance(at_hand, torch.Tensor):
        same = at_hand.shape == known.shape
        if not same and isinstance(owner, (torch.nn.Module, torch.optim.Optimizer)):
            raise CheckpointError(
                f"{name} has the shape {known.shape} in the checkpoint and"
                f" {tuple(at_hand.shape)} here: it is of another model"
            )
        if same and at_hand.dtype == dtype and at_hand.device.type != "meta":
            return at_hand.detach()
    like = _parameter_of(name, owner)
    if is_distributed(like) and like.shape == known.shape:
        return torch.empty_like(like, dtype=dtype)
    return torch.empty(known.shape, dtype=dtype)


def _parameter_of(name: str, owner: Any) -> Any:  # noqa: ANN401 - a parameter
    """Return the parameter to which an optimizer's tensor belongs: optimizer/state/0/exp_avg."""
    number = name.partition("/state/")[2].partition("/")[0]
    groups = getattr(owner, "param_groups", None)
    if not groups or not number.isdecimal():
        return None
    parameters = [parameter for group in groups for parameter in group["params"]]
    return parameters[int(number)] if int(number) < len(parameters) else None
