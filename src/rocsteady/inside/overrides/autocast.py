"""Autocast around the forward of a model that its script trains without any.

Weights and gradients stay as they are, and what the model gives back is float32 again: a loss that
the script computes from it is then computed as before. Torch drops the casts of weights that it
keeps when the outermost autocast ends, which is here after each forward: none outlives a step. They
are worth keeping: a cell that was called in a loop took 35 ms a step, and 51 ms without.

It stays in force where gradients are off. A script that compares both, as in reinforcement
learning, would else compare two precisions, and a validation would judge another model than the one
that is trained. Where the script has an autocast of its own, on or off, that is what counts.
"""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable, Iterator
from typing import Any

from .strategy import Record
from .trained_modules import Call, is_memory, is_traced, unseen

SETTING = "autocast"
OWN = "the script has an autocast of its own"


class Casting:
    """Puts the forward of models under autocast."""

    def __init__(
        self, torch: Any, dtype: Any, record: Record, can_cast: Callable[[str], bool]
    ) -> None:
        self.torch, self.dtype, self.record = torch, dtype, record
        self._can_cast = can_cast  # on a device

    def around(self, module: Any, call: Call) -> Call:
        """Make the call that casts, or give back the one there is."""
        name = type(module).__name__
        kinds = {each.dtype for each in module.parameters() if each.is_floating_point()}
        others = sorted(str(kind) for kind in kinds - {self.torch.float32})
        device = next(module.parameters()).device.type
        if others:
            self.record.refused(SETTING, f"{name} has weights of {', '.join(others)}")
        elif not self._can_cast(device):
            self.record.refused(SETTING, f"autocast on {device} does not take {self.dtype}")
        else:
            return _Cast(self, name, device, call).call
        return call


class _Cast:
    """The call of one module."""

    def __init__(self, casting: Casting, name: str, device: str, inner: Call) -> None:
        torch = casting.torch
        self._torch, self._dtype, self._record = torch, casting.dtype, casting.record
        self._name, self._device, self._inner = name, device, inner
        self._task = torch._C._current_graph_task_id  # noqa: SLF001 - torch's own modules ask so
        self._around = False  # the script's own is, around the call
        self._first = True
        self._off = False

    @unseen
    def call(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Call a module under autocast."""
        torch = self._torch
        if self._task() == -1:  # else a backward computes it again, and must do so as before
            self._around = torch.autocast_increment_nesting() > 1
            torch.autocast_decrement_nesting()
        if self._off or self._around or is_traced(torch):
            return self._inner(module, args, kwargs)
        try:
            with self._watching(), torch.autocast(self._device, self._dtype):
                given = self._inner(module, args, kwargs)
            return in_float32(torch, given, self._dtype)
        except (RuntimeError, TypeError) as error:
            if is_memory(error):
                raise
            why = f"{self._name}: {type(error).__name__}: {error}"
        given = self._inner(module, args, kwargs)  # an error that comes again is the script's own
        self._off = True
        self._record.refused(SETTING, why)
        return given

    def _watching(self) -> Any:
        return self._looking() if self._first else contextlib.nullcontext()

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """See in the first call whether there is an autocast in the model, as some libraries do."""
        kind = self._torch.amp.autocast_mode.autocast
        original, entered = kind.__enter__, 0

        def __enter__(cast: Any) -> Any:  # noqa: N807
            nonlocal entered
            entered += bool(cast._enabled and cast.device == self._device)  # noqa: SLF001
            return original(cast)

        kind.__enter__ = __enter__
        try:
            yield
        finally:
            kind.__enter__ = original
        self._first = False
        if entered > 1:  # ours is one
            self._off = True
            self._record.refused(SETTING, f"{self._name}: {OWN}")
        else:
            dtype = str(self._dtype).replace("torch.", "")
            self._record.applied(SETTING, f"{dtype} in {self._name}, which gives back float32")


def in_float32(torch: Any, given: Any, dtype: Any) -> Any:
    """Return what a model gives back with float32 in place of ``dtype``, and else the same."""
    if isinstance(given, torch.Tensor):
        return given.float() if given.dtype is dtype else given
    if isinstance(given, (tuple, list)):
        made: Any = [in_float32(torch, each, dtype) for each in given]
        if all(map(operator.is_, made, given)):
            return given
        return type(given)(*made) if hasattr(given, "_fields") else type(given)(made)
    inner = given if isinstance(given, dict) else _fields(torch, given)
    changed = {name: in_float32(torch, each, dtype) for name, each in inner.items()}
    changed = {name: new for name, new in changed.items() if new is not inner[name]}
    if not changed:
        return given
    made = copy.copy(given)
    if isinstance(given, dict):
        for name, new in changed.items():
            made[name] = new
    else:
        vars(made).update(changed)
    return made


def _fields(torch: Any, given: Any) -> dict[str, Any]:
    """Return what is in a value: those of the script's own that say so, and distributions."""
    if isinstance(given, torch.distributions.Distribution) or hasattr(
        type(given), "__dataclass_fields__"
    ):
        return getattr(given, "__dict__", {})
    return {}
