"""Apply a strategy to an unmodified script, at the few places of torch that it must pass.

Only imported where there is a strategy. Each override counts what it acted on, and none acts in a
loader's worker. An error of ours leaves a note, and the script then runs as it says itself.
"""

from __future__ import annotations

import contextlib
import copyreg
import inspect
import io
import json
import os
import pickle
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

from . import wire
from .heartbeat import page
from .heartbeat.training_facts import MARK, LoaderRecorder, spelled

# What a value must be. A strategy of which anything is not understood is not applied at all.
CHOICES: dict[str, tuple[Any, ...]] = {
    "worker_context": ("fork", "forkserver", "spawn"),
    "attention": ("math", "efficient", "flash"),
    "miopen": (False,),
    "precision": ("bf16", "fp16", "fp32"),
    "persistent_workers": (False, True),
    "compile": (False,),
}
LEAST_VALUES = {"workers": 0, "prefetch_factor": 1}
BY_VARIABLES = ("gpus",)  # in force anyway: it is no news where there is nothing to act on here
TEXT = 400  # characters of a reason


def requested_settings(text: str) -> dict[str, Any]:
    settings = json.loads(text)
    if not isinstance(settings, dict) or settings.pop("version", None) != wire.STRATEGY_VERSION:
        raise ValueError(f"not of version {wire.STRATEGY_VERSION}")
    for name, value in settings.items():
        if name not in wire.SETTINGS or not _is_known(name, value):
            raise ValueError(f"{name} = {value!r} is not known here")
    return settings


def _is_known(name: str, value: object) -> bool:
    if name == "gpus":
        return isinstance(value, list) and {type(each) for each in value} == {int}
    if name in LEAST_VALUES:
        return type(value) is int and value >= LEAST_VALUES[name]
    return any(type(value) is type(choice) and value == choice for choice in CHOICES[name])


class Record:
    """Keeps what was applied and refused where a crash does not take it along."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = tuple(name for name in settings if name not in BY_VARIABLES)
        self._pid = 0
        self._outcomes: dict[tuple[str, str], str] = {}  # why
        self._writing = threading.Lock()
        if not page.is_child():  # one of those may be a loader's worker; it writes when it acts
            self._write()

    def applied(self, setting: str, why: str = "") -> None:
        self._note(setting, "applied", why)

    def refused(self, setting: str, why: str) -> None:
        self._note(setting, "refused", why)

    def _note(self, setting: str, outcome: str, why: str) -> None:
        if page.is_loader_worker():
            return
        if self._pid != os.getpid():  # forked: what was told is the parent's
            self._outcomes.clear()
            self._writing = threading.Lock()
        before = self._outcomes.get((setting, outcome))
        if before is None or why not in ("", before):
            self._outcomes[setting, outcome] = why
            self._write()

    def _write(self) -> None:
        self._pid = os.getpid()
        told = [
            {"setting": setting, "outcome": outcome, "why": why[:TEXT]}
            for (setting, outcome), why in list(self._outcomes.items())
        ]
        content = {"version": wire.APPLIED_VERSION, "asked": self._settings, "told": told}
        try:
            with self._writing:
                page.leave(wire.APPLIED_SUFFIX, json.dumps(content).encode())
        except OSError as error:  # the setting is in force all the same
            page.note("strategy", error)


LOADER_SETTINGS = frozenset(("workers", "worker_context", "persistent_workers", "prefetch_factor"))
SENT = ("dataset", "collate_fn", "worker_init_fn")  # to the workers
WORKERS_ONLY = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
LoaderArguments = tuple[int, str]  # workers and context, as the script says
UNGUARDED = 'the main module has no `if __name__ == "__main__":` around what runs'


class LoaderSettings:
    def __init__(self, wanted: dict[str, Any], record: Record, facts: LoaderRecorder) -> None:
        self._wanted = wanted
        self._record = record
        self._facts = facts
        self._inline: dict[int, tuple[Any, Any]] = {}  # by dataset: a weak reference, its mark

    def around_init(self, original: Any) -> Any:
        """Make ``DataLoader.__init__`` take what was asked for."""
        signature = inspect.signature(original)

        def __init__(self_: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            mark = bound = None
            try:
                if not page.is_loader_worker():
                    bound = signature.bind(self_, *args, **kwargs)
                    mark = self._settle(bound.arguments)
            except TypeError:
                bound = None  # the script's own mistake, which torch will name
            except Exception as error:  # ours, and not the script's business
                bound = None
                page.note("loader settings", error)
            if bound is None:
                original(self_, *args, **kwargs)
            else:
                original(*bound.args, **bound.kwargs)
            if mark is not None:
                setattr(self_, MARK, mark)

        return __init__

    def _settle(self, given: dict[str, Any]) -> LoaderArguments | None:
        """Change the arguments, and give what the script asked for."""
        workers = given.get("num_workers", 0)
        if workers <= 0:
            return self._made_again(given["dataset"])
        context = spelled(given.get("multiprocessing_context"))
        mark = workers, context
        wanted = self._wanted.get("workers", workers)
        if wanted != workers:
            given["num_workers"] = wanted
            self._record.applied("workers", _what_changes(given, workers, wanted))
        if wanted > 0:
            self._settle_workers(given, context)
        else:
            for name in WORKERS_ONLY:
                given.pop(name, None)
            self._remember(given["dataset"], mark)
        return mark

    def _settle_workers(self, given: dict[str, Any], context: str) -> None:
        for name, default in (("persistent_workers", False), ("prefetch_factor", 2)):
            wanted, has = self._wanted.get(name), given.get(name)
            has = default if has is None else has
            if wanted is not None and wanted != has:
                given[name] = wanted
                self._record.applied(name, f"{has} -> {wanted}")
        wanted = self._wanted.get("worker_context")
        if wanted is None or wanted == context:
            return
        why_not = self._why_not(wanted, given)
        if why_not:
            self._record.refused("worker_context", why_not)
        else:
            given["multiprocessing_context"] = wanted
            self._record.applied("worker_context", f"{context} -> {wanted}")

    def _why_not(self, context: str, given: dict[str, Any]) -> str:
        """Return what stands against starting workers in this way; "" if nothing does."""
        if context not in sys.modules["multiprocessing"].get_all_start_methods():
            return f"this system has no {context}"
        if context == "fork":
            return ""
        if not self._facts.guarded():
            return UNGUARDED
        for name in SENT:
            why_not = _why_not_pickled(given.get(name))
            if why_not:
                self._facts.pickles(can=False)
                return f"{name} {why_not}"
        self._facts.pickles(can=True)
        return ""

    def _remember(self, dataset: Any, mark: LoaderArguments) -> None:
        key = id(dataset)
        with contextlib.suppress(TypeError):  # a list, say, to which there are no weak references
            reference = weakref.ref(dataset, lambda _: self._inline.pop(key, None))
            self._inline[key] = reference, mark

    def _made_again(self, dataset: Any) -> LoaderArguments | None:
        reference, mark = self._inline.get(id(dataset), (None, None))
        return mark if reference is not None and reference() is dataset else None


def _what_changes(given: dict[str, Any], workers: int, wanted: int) -> str:
    text = f"num_workers {workers} -> {wanted}"
    if wanted == 0:
        text += "; random numbers that the dataset draws are then the training's own"
        if given.get("worker_init_fn") is not None:
            text += "; worker_init_fn is not called"
        if given.get("persistent_workers"):
            text += "; persistent workers save a draw an epoch, so later epochs shuffle differently"
    if isinstance(given["dataset"], sys.modules["torch.utils.data.dataset"].IterableDataset):
        text += "; an iterable dataset may give other batches to another number of workers"
    return text


MAX_BYTES = 256 * 1024 * 1024
MAX_SECONDS = 2.0


class _TooLarge(Exception):  # noqa: N818 - an answer, and not an error
    """It may be possible, and would cost too much at each start of a worker."""


def _why_not_pickled(thing: Any) -> str:
    """Return why a thing cannot be sent to a new process; "" if it can.

    Tensors are skipped: they go through shared memory, and pickling one here would copy it.
    """
    try:
        _Trial().dump(thing)
    except _TooLarge as error:
        return f"is too large to be sent to each worker: more than {error}"
    except Exception as error:  # whatever the script's own classes raise
        return f"cannot be pickled: {type(error).__name__}: {error}"
    return ""


class _Nowhere(io.RawIOBase):
    def __init__(self) -> None:
        self._written = 0

    def write(self, content: Any) -> int:
        size = memoryview(content).nbytes
        self._written += size
        if self._written > MAX_BYTES:
            raise _TooLarge(f"{MAX_BYTES >> 20} MiB")
        return size


class _Trial(pickle.Pickler):
    """Pickles as multiprocessing does when it starts a process."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=pickle.HIGHEST_PROTOCOL)
        reduction: Any = sys.modules["multiprocessing.reduction"]  # torch has imported it
        added = reduction.ForkingPickler._extra_reducers  # noqa: SLF001
        self.dispatch_table = {**copyreg.dispatch_table, **added}
        self._until = monotonic() + MAX_SECONDS
        torch: Any = sys.modules["torch"]
        self._shared = (torch.Tensor, torch.storage.UntypedStorage, torch.storage.TypedStorage)

    def persistent_id(self, thing: Any) -> str | None:
        """Be asked of each thing: the C code of pickle calls this first."""
        if isinstance(thing, self._shared):
            if getattr(thing, "requires_grad", False) and not thing.is_leaf:
                raise ValueError("a tensor in it is part of a graph")
            return "tensor"
        if monotonic() > self._until:
            raise _TooLarge(f"{MAX_SECONDS:g} s of pickling")
        return None


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
    def __init__(self, facts: LoaderRecorder, in_place_of: InPlaceOf) -> None:
        self.wanted: dict[str, Any] = {}
        self._facts = facts
        self._in_place_of = in_place_of
        try:
            self.wanted = requested_settings(os.environ[wire.STRATEGY])
            self._record = Record(self.wanted)
        except ValueError as error:
            page.note("the strategy is not applied", error)
        self._attention_seen = ""

    def apply(self, name: str, module: Any) -> None:
        if name == "torch.utils.data.dataloader" and self.wanted.keys() & LOADER_SETTINGS:
            settings = LoaderSettings(self.wanted, self._record, self._facts)
            self._replace(module.DataLoader, "__init__", settings.around_init)
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
