"""State as a tree: tensors by name, and everything else as JSON. Never a pickle.

A state is what ``state_dict()`` gives: dicts, lists and tuples with tensors and plain values at the
leaves. ``StateParts`` splits it into the tensors, each under a name that is its path, and a
skeleton that JSON can hold. ``put_together`` builds it again. What is neither is not captured: its
path and type are told, and when the state is put together again the value at hand stays.
"""

from __future__ import annotations

import base64
import importlib
import sys
from collections.abc import Callable, Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import torch

from rocsteady_train.checkpoints import tensor_files
from rocsteady_train.checkpoints.folder import (
    KIND,
    BrokenError,
    CheckpointError,
    Tensor,
    read_manifest,
    read_plan,
    tensors_in,
)
from rocsteady_train.checkpoints.tensor_files import DTYPES, is_distributed

_PLAIN = (str, int, float, bool, type(None))


class StateParts:
    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.missed: list[str] = []  # paths that could not be captured, with the type of each

    def take(self, value: Any, path: str) -> Any:  # noqa: ANN401 - state is of any type
        """Return the skeleton of a value, and keep its tensors."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            return {KIND: "tensor", "name": self._keep(value, path)}
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if type(value) is list:
            return [self.take(item, f"{path}/{index}") for index, item in enumerate(value)]
        if isinstance(value, (tuple, set, frozenset)) and type(value) in _GROUPS:
            items = [self.take(item, f"{path}/{index}") for index, item in enumerate(value)]
            whole = isinstance(value, tuple) or not any(map(_is_missed, items))
            return {KIND: type(value).__name__ if whole else "missed", "items": items}
        return self._other(value, path)

    def _mapping(self, value: Mapping[Any, Any], path: str) -> Any:  # noqa: ANN401 - JSON
        if all(type(key) is str for key in value) and KIND not in value:
            return {key: self.take(item, f"{path}/{key}") for key, item in value.items()}
        keys = [self.take(key, f"{path}/key") for key in value]
        items = [
            [key, self.take(item, f"{path}/{name}")]
            for key, (name, item) in zip(keys, value.items())
            if not _is_missed(key)
        ]
        return {KIND: "dict", "items": items}

    def _other(self, value: Any, path: str) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, (bytes, bytearray)):
            return {KIND: "bytes", "base64": base64.b64encode(value).decode()}
        if isinstance(value, (torch.dtype, torch.device)):
            return {KIND: type(value).__name__, "name": str(value).removeprefix("torch.")}
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
            text = base64.b64encode(value.tobytes()).decode()
            return {KIND: "scalar", "dtype": value.dtype.str, "base64": text}
        if numpy is not None and isinstance(value, numpy.ndarray) and _torch_has(value.dtype):
            array = numpy.array(value)  # a copy, in C order
            return {KIND: "numpy", "name": self._keep(torch.from_numpy(array), path)}
        if isinstance(value, (bool, int, float, str)):  # of a class derived from one of them
            return self.take(_plain(value), path)
        self.missed.append(f"{path} ({type(value).__module__}.{type(value).__qualname__})")
        return {KIND: "missed"}

    def _keep(self, tensor: Any, path: str) -> str:  # noqa: ANN401 - a tensor
        name, number = path, 2
        while name in self.tensors:  # a key had a "/" in it
            name, number = f"{path}#{number}", number + 1
        self.tensors[name] = tensor.detach()
        return name


def put_together(skeleton: Any, tensor: Callable[[str, Any], Any], fresh: Any = None) -> Any:  # noqa: ANN401
    """Build a state from its skeleton.

    ``tensor(name, fresh)`` gives each tensor; ``fresh`` is the same state of an object that was
    just made, as far as it has one.
    """
    if isinstance(skeleton, list):
        others = fresh if isinstance(fresh, (list, tuple)) else ()
        return [
            put_together(item, tensor, others[index] if index < len(others) else None)
            for index, item in enumerate(skeleton)
        ]
    if not isinstance(skeleton, dict):
        return skeleton
    kind = skeleton.get(KIND)
    if kind is None:
        known = fresh if isinstance(fresh, Mapping) else {}
        return {
            key: put_together(item, tensor, known.get(key))
            for key, item in skeleton.items()
            if not (_is_missed(item) and key not in known)
        }
    return _build(kind, skeleton, tensor, fresh)


def _build(
    kind: str,
    skeleton: dict[str, Any],
    tensor: Callable[[str, Any], Any],
    fresh: Any,  # noqa: ANN401 - state is of any type
) -> Any:  # noqa: ANN401
    if kind == "tensor":
        return tensor(skeleton["name"], fresh)
    if kind == "numpy":
        return tensor(skeleton["name"], None).numpy()  # it is filled later
    if kind == "dict":
        known = fresh if isinstance(fresh, Mapping) else {}
        pairs = [(put_together(key, tensor), item) for key, item in skeleton["items"]]
        return {
            key: put_together(item, tensor, known.get(key))
            for key, item in pairs
            if not (_is_missed(item) and key not in known)
        }
    if kind == "missed":
        return fresh
    if kind in _GROUPS_BY_NAME:
        return _GROUPS_BY_NAME[kind](put_together(skeleton["items"], tensor, fresh))
    return _WORDS[kind](skeleton)


def _is_missed(item: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(item, dict) and item.get(KIND) == "missed"


def _torch_has(dtype: Any) -> bool:  # noqa: ANN401 - of NumPy
    return dtype.kind in "biuf" and dtype.itemsize <= 8 and bool(dtype.isnative)  # noqa: PLR2004


def _scalar(skeleton: dict[str, Any]) -> Any:  # noqa: ANN401 - of NumPy
    numpy: Any = importlib.import_module("numpy")  # torch may be without it
    return numpy.frombuffer(base64.b64decode(skeleton["base64"]), skeleton["dtype"])[0]


def _plain(value: Any) -> Any:  # noqa: ANN401 - one of the four
    if isinstance(value, str):
        return str.__str__(value)  # also of an enum, whose own str() says something else
    return next(kind(value) for kind in (bool, int, float) if isinstance(value, kind))


_GROUPS = (tuple, set, frozenset, torch.Size)
_GROUPS_BY_NAME: dict[str, Callable[[Any], Any]] = {kind.__name__: kind for kind in _GROUPS}
_WORDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "bytes": lambda skeleton: base64.b64decode(skeleton["base64"]),
    "scalar": _scalar,
    "dtype": lambda skeleton: getattr(torch, skeleton["name"]),
    "device": lambda skeleton: torch.device(skeleton["name"]),
}


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
            _uncompiled(value).load_state_dict(filled[name])
        else:
            value.clear()
            value.update(filled[name])


def _load(path: Path, plan: Mapping[str, Tensor], wanted: dict[str, Any], group: Any) -> None:  # noqa: ANN401
    failed: tuple[type[BaseException], ...] = (OSError,)
    try:
        if group is None and tensor_files.all_plain(wanted.values()):
            tensor_files.load_plain(path, plan, wanted)
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
    value = _uncompiled(value)
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


def _uncompiled(value: Any) -> Any:  # noqa: ANN401 - of any class
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
            there, here = set(tensors_in(saved[name])), parts.tensors.keys()
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
