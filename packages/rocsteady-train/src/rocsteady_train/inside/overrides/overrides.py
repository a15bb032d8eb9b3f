"""Apply a strategy to an unmodified script, at the few places of torch that it must pass.

Only imported where there is a strategy. Each override counts what it acted on, and none acts in a
loader's worker. An error of ours leaves a note, and the script then runs as it says itself.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from .. import wire
from ..heartbeat import page
from ..heartbeat.loader_facts import LoaderRecorder
from . import loader_settings, strategy

InPlaceOf = Callable[[Any, Any], Any]  # makes a function of ours look like the original

KERNELS = {  # of attention that stay allowed; math is left where the one asked for cannot be used
    "math": ("math",),
    "efficient": ("mem_efficient", "math"),
    "flash": ("flash", "math"),
}
SWITCH = "_set_sdp_use_"
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
IN_A_GRAPH = "in force while a graph was compiled; whether attention is in it was not seen"


class Overrides:
    """Puts in force what was asked of this process."""

    def __init__(self, facts: LoaderRecorder, in_place_of: InPlaceOf) -> None:
        self.wanted: dict[str, Any] = {}
        self._facts = facts
        self._in_place_of = in_place_of
        try:
            self.wanted = strategy.asked(os.environ[wire.STRATEGY])
            self._record = strategy.Record(self.wanted)
        except ValueError as error:
            page.note("the strategy is not applied", error)
        self._attention_seen = ""

    def apply(self, name: str, module: Any) -> None:
        """Be told that a module was imported."""
        if name == "torch.utils.data.dataloader" and self.wanted.keys() & loader_settings.NAMES:
            self._loaders(module)
        if name == "torch._dynamo.callback" and "attention" in self.wanted:
            module.on_compile_start(lambda *_: self._see_attention(IN_A_GRAPH))
        if name == "torch.distributed.launcher.api" and "gpus" in self.wanted:
            self._replace(module.LaunchConfig, "__post_init__", self._around_launch)
        if name == "torch":
            self._torch(module)

    def _torch(self, torch: Any) -> None:
        if "attention" in self.wanted:
            self._attention(torch)
        if "miopen" in self.wanted:
            self._miopen(torch)
        if "precision" in self.wanted:
            self._precision(torch)
        if "compile" in self.wanted:
            self._compile_nothing(torch)

    def _loaders(self, module: Any) -> None:
        settings = loader_settings.LoaderSettings(self.wanted, self._record, self._facts)
        self._replace(module.DataLoader, "__init__", settings.around_init)

    def _around_launch(self, original: Any) -> Any:
        """Have torchrun start one rank for each GPU that is left. Other hosts have their own."""
        most = len(self.wanted["gpus"])

        def fewer(launch: Any) -> None:
            ranks = launch.nproc_per_node
            if ranks > most and launch.max_nodes > 1:
                self._record.refused("gpus", "there are ranks on other hosts")
            elif ranks > most:
                launch.nproc_per_node = most
                self._record.applied("gpus", f"{ranks} ranks -> {most}")

        def __post_init__(self_: Any) -> None:  # noqa: N807 - it becomes that method
            try:
                fewer(self_)
            except Exception as error:  # ours, and not the script's business
                page.note("ranks", error)
            original(self_)

        return __post_init__

    def _replace(self, owner: Any, name: str, around: Callable[[Any], Any]) -> Any:
        original = getattr(owner, name)
        setattr(owner, name, self._in_place_of(original, around(original)))
        return original

    def _attention(self, torch: Any) -> None:
        """Set the switches for good, and see whether there is any attention to act on."""
        allowed = KERNELS[self.wanted["attention"]]
        for switch in [name for name in dir(torch._C) if name.startswith(SWITCH)]:  # noqa: SLF001
            # Whatever a script calls for this ends in one of these.
            self._replace(torch._C, switch, _settled)(switch[len(SWITCH) :] in allowed)  # noqa: SLF001
        beside = getattr(torch.backends, "mha", None)  # kernels that these switches do not reach
        if hasattr(beside, "set_fastpath_enabled"):
            self._replace(beside, "set_fastpath_enabled", _settled)(value=False)
        functional, name = torch.nn.functional, "scaled_dot_product_attention"

        def around(original: Any) -> Any:
            def attention(*args: Any, **kwargs: Any) -> Any:
                if getattr(functional, name) is attention:
                    setattr(functional, name, original)  # once is enough
                self._see_attention(f"only {' and '.join(allowed)}")
                return original(*args, **kwargs)

            return attention

        self._replace(functional, name, around)
        builtins: Any = sys.modules.get("torch.jit._builtins")
        if hasattr(builtins, "_register_builtin"):  # so that scripted modules know ours too
            builtins._register_builtin(getattr(functional, name), f"aten::{name}")  # noqa: SLF001

    def _miopen(self, torch: Any) -> None:
        """Turn the switch off for good that cuDNN and, on ROCm, MIOpen share."""
        self._replace(torch._C, "_set_cudnn_enabled", _settled)(False)  # noqa: FBT003, SLF001
        switch = vars(type(torch.backends.cudnn)).get("enabled")  # it kept the original
        if hasattr(switch, "setter"):
            switch.setter = torch._C._set_cudnn_enabled  # noqa: SLF001
        self._record.applied("miopen", "torch.backends.cudnn.enabled = False")

    def _see_attention(self, why: str) -> None:
        if not self._attention_seen or (self._attention_seen == IN_A_GRAPH != why):
            self._attention_seen = why
            self._record.applied("attention", why)

    def _precision(self, torch: Any) -> None:
        """Have autocast cast to what was asked for. What a script casts itself stays.

        A GradScaler is left as it is: with bf16 and fp32 it scales what need not be scaled, and
        takes that back before the step.
        """
        name = DTYPES[self.wanted["precision"]]
        wanted = getattr(torch, name)
        works: dict[str, bool] = {}  # by device

        def recast(cast: Any, original: Any) -> None:
            if not cast._enabled or cast.fast_dtype == wanted or page.is_loader_worker():  # noqa: SLF001
                return
            has, device = str(cast.fast_dtype).replace("torch.", ""), cast.device
            if wanted is torch.float32:
                cast._enabled = False  # noqa: SLF001
                self._record.applied("precision", f"{has} -> autocast off")
                return
            if device not in works:
                works[device] = _can_cast(type(cast), wanted, device, original)
            if works[device]:
                cast.fast_dtype = wanted
                self._record.applied("precision", f"{has} -> {name}")
            else:
                self._record.refused("precision", f"autocast on {device} does not take {name}")

        def around(original: Any) -> Any:
            def __init__(self_: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
                original(self_, *args, **kwargs)
                try:
                    recast(self_, original)
                except Exception as error:  # ours, and not the script's business
                    page.note("precision", error)

            return __init__

        self._replace(torch.amp.autocast_mode.autocast, "__init__", around)

    def _compile_nothing(self, torch: Any) -> None:
        """Have torch.compile give back what it was given.

        A module comes in the wrapper that it would have, which then compiles nothing: the names in
        its checkpoints stay the same, and the module is where scripts look for it.
        """

        def around_compile(original: Any) -> Any:
            def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - it becomes that function
                if page.is_loader_worker():
                    return original(*args, **kwargs)
                given = args[0] if args else kwargs.get("model")
                if given is None:  # as a decorator
                    return compile
                self._record.applied("compile", "torch.compile compiles nothing")
                return _wrapped(given) if isinstance(given, torch.nn.Module) else given

            return compile

        def around_method(_original: Any) -> Any:
            def compile(_module: Any, *_args: Any, **_kwargs: Any) -> None:  # noqa: A001
                self._record.applied("compile", "Module.compile compiles nothing")

            return compile

        self._replace(torch, "compile", around_compile)
        if hasattr(torch.nn.Module, "compile"):
            self._replace(torch.nn.Module, "compile", around_method)


def _settled(_original: Any) -> Any:
    """Make a switch that does nothing any more."""

    def switch(*_: Any, **__: Any) -> None:
        return

    return switch


def _can_cast(kind: Any, dtype: Any, device: str, initialize: Any) -> bool:
    """Try whether autocast takes a type on this device; where not, it warns or raises."""
    trial = object.__new__(kind)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            initialize(trial, device, dtype)
    except RuntimeError:
        return False
    return bool(trial._enabled)


def _wrapped(module: Any) -> Any:
    try:
        from torch._dynamo import eval_frame  # noqa: PLC0415 - only where a script compiles

        return eval_frame.OptimizedModule(module, eval_frame._NullDecorator())  # noqa: SLF001
    except Exception as error:  # other versions, or a Dynamo that cannot be imported
        page.note("torch.compile gives back the module itself", error)
        return module
