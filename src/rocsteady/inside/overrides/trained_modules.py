"""Find the modules that a script trains, as it calls them, and put a call of ours in their place.

A module is found when it is the outermost that is called and some optimizer has one of its
parameters. ``Module.__call__`` is ours only while there are parameters that were not found, and not
within a call: so the layers in it cost nothing more, and Dynamo does not meet it. Each change of a
class costs Python what it has learnt of it, so calls are watched a few times, and then ever more
rarely. Modules that were found call ours through the place that ``Module.compile`` has for that.
It is left out of copies and of what is saved, and no name in a state dict changes.
"""

from __future__ import annotations

import sys
import weakref
from _thread import get_ident
from collections.abc import Callable
from typing import Any, TypeVar

from ..heartbeat import page, script_end

Call = Callable[[Any, Any, Any], Any]  # a module, its arguments, and those by name
Around = Callable[[Any, Call], Call]  # of a module: a call of ours, around the one it has
Ours = TypeVar("Ours", bound=Callable[..., Any])
CALLS = 32  # that are watched after an optimizer was made
MORE = (
    4  # and at each doubling of the steps: parts of a model may be trained later, or called never
)
PLACE = "_compiled_call_impl"


def unseen(function: Ours) -> Ours:
    """Mark a function of ours in which a training may be for other reasons than ours."""
    marked: Any = function
    marked.__code__ = marked.__code__.replace(co_filename=script_end.PASSED_OVER)
    return function


class Trained:
    """Finds what is trained, and has it called through ``arounds``, the innermost first."""

    def __init__(self, torch: Any, in_place_of: Any) -> None:
        self.arounds: list[Around] = []
        self.steps = 0  # of all optimizers
        self._module = torch.nn.Module
        self._in_backward = _asks_for_backward(torch)
        self._original = self._module.__call__
        self._watching = in_place_of(self._original, self._watched())
        self._waits: dict[int, Any] = {}  # parameters that no module was found for
        self._thread = 0  # that made the optimizer
        self._left = 0  # calls to be watched
        optimizer = torch.optim.Optimizer
        optimizer.add_param_group = in_place_of(
            optimizer.add_param_group, self._around_group(optimizer.add_param_group)
        )
        replicate = "_replicate_for_data_parallel"
        original = getattr(self._module, replicate)
        setattr(self._module, replicate, in_place_of(original, _around_replica(original)))
        hooks = sys.modules[optimizer.__module__]
        hooks.register_optimizer_step_post_hook(self._stepped)

    def dynamo(self, module: Any) -> None:
        """Be told that Dynamo was imported, which looks for calls that are not torch's own."""
        for each in (module.utils, module.variables.nn_module):
            if each.unpatched_nn_module_call is self._watching:
                each.unpatched_nn_module_call = self._original

    def _around_group(self, original: Any) -> Any:
        def add_param_group(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            try:
                for each in optimizer.param_groups[-1]["params"]:
                    self._waits[id(each)] = weakref.ref(each)
                self._thread = get_ident()
                self._left = CALLS
                self._watch()
            except Exception as error:  # ours, and not the script's business
                page.note("what is trained", error)

        return add_param_group

    def _stepped(self, *_: Any) -> None:
        self.steps += 1
        if self._waits and self.steps & (self.steps - 1) == 0:
            self._left = max(self._left, MORE)
            self._watch()

    _stepped._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001

    def _watch(self) -> None:
        ours = self._module.__call__ is self._original  # and not somebody else's
        if self._waits and self._left > 0 and ours:
            self._module.__call__ = self._watching

    def _rest(self) -> None:
        if self._module.__call__ is self._watching:
            self._module.__call__ = self._original

    def _watched(self) -> Any:
        original = self._original

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if get_ident() != self._thread or self._in_backward():
                return original(module, *args, **kwargs)
            self._rest()
            self._left -= 1
            try:
                self._look(module)
            except Exception as error:  # ours, and not the script's business
                page.note("what is trained", error)
            try:
                return original(module, *args, **kwargs)
            finally:
                self._watch()

        return __call__

    def _look(self, module: Any) -> None:
        found = False
        for each in module.parameters():
            reference = self._waits.get(id(each))
            if reference is not None and reference() is each:
                del self._waits[id(each)]
                found = True
        if not found or isinstance(vars(module).get(PLACE), CallSite):
            return
        call = _as_it_was(module)
        for around in self.arounds:
            call = around(module, call)
        vars(module)[PLACE] = CallSite(module, call)


class CallSite:
    """What a module that was found is called by."""

    def __init__(self, module: Any, call: Call) -> None:
        self._module = weakref.ref(module)
        self._call = call

    @unseen
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self._call(self._module(), args, kwargs)

    def __reduce__(self) -> Any:
        """Be nothing in a copy."""
        return type(None), ()


def _around_replica(original: Any) -> Any:
    def _replicate_for_data_parallel(module: Any) -> Any:
        replica = original(module)
        if isinstance(vars(replica).get(PLACE), CallSite):
            del vars(replica)[PLACE]  # it would call the module on the first device
        return replica

    return _replicate_for_data_parallel


def is_traced(torch: Any) -> bool:
    """Tell whether a call is only made to be recorded: for an export, or in a larger graph."""
    return bool(torch._C._get_tracing_state() or torch.compiler.is_compiling())  # noqa: SLF001


def is_memory(error: Exception) -> bool:
    """Tell whether it is memory that is missing, which a script may have an answer to."""
    return "out of memory" in str(error) or "can't allocate memory" in str(error)


def _as_it_was(module: Any) -> Call:
    own = getattr(module, PLACE)

    @unseen
    def call(module: Any, args: Any, kwargs: Any) -> Any:
        return module._call_impl(*args, **kwargs) if own is None else own(*args, **kwargs)  # noqa: SLF001

    return call


def _asks_for_backward(torch: Any) -> Callable[[], bool]:
    """Make the question whether this thread is in a backward, where layers are computed again."""
    task = torch._C._current_graph_task_id  # noqa: SLF001 - torch's own modules ask so too
    return lambda: task() != -1
