"""Compile the models that a script trains, in place, and call them as they are if that fails.

A model is compiled once a step was made with it: by then it is known whether the script takes
gradients of gradients, which compiled graphs do not have. Calls without gradients are not compiled:
they often come in other shapes, and each would be compiled anew.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

from .strategy import Record
from .trained_modules import PLACE, Call, CallSite, Trained, is_traced, unseen

SETTING = "compile"
SWITCHED_OFF = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
SPREAD = {"DataParallel", "FullyShardedDataParallel", "FSDPModule"}  # they copy or swap what is in
RANKS = "DistributedDataParallel"
OWN = "the script compiles it itself"
TWICE = "the script takes gradients of gradients"
NO_GRAPH = "no graph was found in it"
CREATE_GRAPH = {"grad": 4, "backward": 3}  # where this argument is
# What scripts may do with a model that is not compiled, and could not with one that is.
CAREFUL = {
    "torch._functorch.config": {
        "donated_buffer": False,  # to go backward twice
        "force_non_lazy_backward_lowering": True,  # so that an error comes where it can be met
    },
    "torch._dynamo.config": {"skip_nnmodule_hook_guards": False},  # to add hooks later
}


class Compiling:
    """Compiles what is trained."""

    def __init__(self, torch: Any, trained: Trained, record: Record) -> None:
        self.torch = torch
        self.trained = trained
        self.record = record
        self.twice = False
        self.kinds: set[type] = set()  # of which there are graphs, for all modules of that class

    def around(self, module: Any, call: Call) -> Call:
        """Make the call that compiles, or give back the one there is."""
        kinds = {kind.__name__ for kind in type(module).__mro__}
        why_not = _why_not(module, kinds)
        if why_not:
            self.record.refused(SETTING, f"{type(module).__name__}: {why_not}")
        elif RANKS in kinds:  # which is not for Dynamo: what it holds is
            vars(module.module)[PLACE] = CallSite(module.module, _Compiled(self, _plain).call)
        else:
            return _Compiled(self, call).call
        return call

    def around_gradients(self, place: int) -> Any:
        """Make a function that takes gradients tell whether it makes a graph of that."""

        def around(original: Any) -> Any:
            def gradients(*args: Any, **kwargs: Any) -> Any:
                if kwargs.get("create_graph") or (len(args) > place and args[place]):
                    self.twice = True
                return original(*args, **kwargs)

            return gradients

        return around


class _Compiled:
    """The call of one module."""

    def __init__(self, compiling: Compiling, inner: Call) -> None:
        self._compiling = compiling
        self._inner = inner
        self._begun = compiling.trained.steps
        self._fast: Any = None
        self._off = False

    @unseen
    def call(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Call a module, compiled if it can be."""
        torch = self._compiling.torch
        if self._off or not torch.is_grad_enabled() or is_traced(torch):
            return self._inner(module, args, kwargs)
        if self._fast is None and self._compiling.trained.steps == self._begun:
            return self._inner(module, args, kwargs)
        try:
            if self._compiling.twice:
                raise _NotSo(TWICE)  # noqa: TRY301 - the way out is the same
            return (self._fast or self._first)(module, args, kwargs)
        except Exception as error:
            why = str(error) if isinstance(error, _NotSo) else f"{type(error).__name__}: {error}"
        given = self._inner(module, args, kwargs)  # an error that comes again is the script's own
        self._off = True
        self._compiling.record.refused(SETTING, f"{type(module).__name__}: {why}")
        return given

    @unseen
    def _first(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Compile, which is done when it is called, and see whether anything was."""
        compiled = _compiled(self._compiling.torch, module)
        before = _graphs()
        given = compiled(*args, **kwargs)
        graphs, kinds = _graphs() - before, self._compiling.kinds
        if not graphs and type(module) not in kinds:
            raise _NotSo(NO_GRAPH)
        kinds.add(type(module))

        @unseen
        def fast(_module: Any, args: Any, kwargs: Any) -> Any:
            return compiled(*args, **kwargs)

        self._fast = fast
        self._compiling.record.applied(SETTING, f"{type(module).__name__}: {graphs} new graphs")
        return given


class _NotSo(Exception):  # noqa: N818 - it is no error
    """Says why a module stays as it is."""


def _compiled(torch: Any, module: Any) -> Any:
    """Have torch compile a module in place, and give what it put there."""
    for name, settings in CAREFUL.items():
        config = importlib.import_module(name)
        for setting, value in settings.items():
            with contextlib.suppress(AttributeError):  # another version
                setattr(config, setting, value)
    dynamo = importlib.import_module("torch._dynamo")
    if dynamo.trace_rules.check(module.forward):  # a class of torch's own, which Dynamo passes over
        return torch.compile(dynamo.external_utils.wrap_inline(module._call_impl))  # noqa: SLF001
    ours = vars(module)[PLACE]
    try:
        torch.nn.Module.compile(module)  # a class of the script's may have another method so named
        return vars(module)[PLACE]
    finally:
        vars(module)[PLACE] = ours


def _graphs() -> int:
    counters = sys.modules["torch._dynamo.utils"].counters
    return int(counters["stats"]["unique_graphs"])


@unseen
def _plain(module: Any, args: Any, kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)  # noqa: SLF001


def _why_not(module: Any, kinds: set[str]) -> str:
    for name in SWITCHED_OFF:
        if os.environ.get(name, "0") == "1":
            return f"{name}=1 is set"
    if kinds & SPREAD:
        return "its parts are kept on several devices"
    if any(
        vars(each).get(PLACE) or "_orig_mod" in vars(each)["_modules"] for each in module.modules()
    ):
        return OWN
    return ""
