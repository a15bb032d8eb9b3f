"""Which entry points of PyTorch beat, hooked as each module is imported."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .. import wire, writes
from ..wire import CHECKPOINT, COMPILE, COMPUTE, EVALUATE, FAULTS, RECORD, RESUME_TRAINER, STRATEGY
from . import page, script_end, step_beats
from .heart import AFTER_ASIDE, Heart
from .training_facts import LoaderRecorder, LossMonitor, SizeReport

heart = Heart()
facts = LoaderRecorder(heart)
size = SizeReport(heart)


def before(name: str, _module: ModuleType) -> None:
    """Be told that a module is about to be run: torch itself is where it all begins."""
    if name == "torch.distributed.elastic.rendezvous.api":
        from ..launcher import choose  # noqa: PLC0415 - only in a torchrun

        choose(sys.argv[1:], os.environ)
    if name != "torch":
        return
    page.let_supervisor_trace()
    page.show_crashes()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
    script_end.install(heart)
    if not page.is_child():
        try:
            heart.open()
        except Exception as error:  # ours, and not the script's business
            heart.stop(error)


def after(name: str, module: ModuleType) -> None:
    hook = _HOOKS.get(name)
    try:
        if hook is not None:
            hook(module)
    finally:
        if RESUME_TRAINER in os.environ and name.endswith(".trainer"):
            from ..resumed_trainer import give_checkpoint  # noqa: PLC0415 - only in a restart

            give_checkpoint(module, _in_place_of)
        if STRATEGY in os.environ:
            _overrides().apply(name, module)
        if FAULTS in os.environ:
            _faults().apply(name, module)
        if RECORD in os.environ and name == "torch":
            _record(module)


@functools.cache
def _overrides() -> Any:
    from ..overrides import Overrides  # noqa: PLC0415 - only where there is a strategy

    return Overrides(facts, _in_place_of)


@functools.cache
def _faults() -> Any:
    from ..faults import FaultInjector  # noqa: PLC0415 - only in a drill

    return FaultInjector(heart, _in_place_of)


def _record(torch: Any) -> None:
    from ..operation_recorder import Recorder  # noqa: PLC0415 - only in a probe

    recorder = Recorder(heart)
    for watcher in recorder.watchers:
        torch.autograd.backward = _in_place_of(
            torch.autograd.backward, watcher.around_backward(torch.autograd.backward)
        )
    recorder.__enter__()


def _after_fork() -> None:
    """Leave the page to the parent; a child that trains makes its own."""
    try:
        heart.reset()
        facts.reset()
        size.reset()
        page.let_supervisor_trace()
    except Exception as error:  # ours, and not the script's business
        page.note("after fork", error)


def _optimizer(module: Any) -> None:
    step_begins, step_ends = step_beats.step_hooks(heart, size.stepped)
    for function in (step_begins, step_ends):
        function._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001
    _pass_over(step_begins, step_ends)
    module.register_optimizer_step_pre_hook(step_begins)
    module.register_optimizer_step_post_hook(step_ends)
    heart.hooked("optimizer")


def _loader(module: Any) -> None:
    iterator = module._BaseDataLoaderIter  # noqa: SLF001 - its name has been the same for years
    original = iterator.__next__
    iterator.__next__ = _in_place_of(original, step_beats.around_next(heart, original))
    starts = module.DataLoader.__iter__  # starts the workers, which takes as long as many batches
    module.DataLoader.__iter__ = _in_place_of(starts, step_beats.around_next(heart, starts))
    heart.hooked("loader")
    made = iterator.__init__

    def __init__(self: Any, loader: Any) -> None:  # noqa: N807 - it becomes that method
        try:
            size.iterated(loader)
            facts.iterated(loader)
        except Exception as error:  # ours, and not the script's business
            page.note("facts of a loader", error)
        made(self, loader)

    iterator.__init__ = _in_place_of(made, __init__)


def _backward(module: Any) -> None:
    original = module.backward
    looking = _in_place_of(original, LossMonitor(heart).around(original))
    module.backward = _in_place_of(original, step_beats.around_backward(heart, looking))
    heart.hooked("backward")


def _saves(*names: str) -> Callable[[Any], None]:
    def hook(module: Any) -> None:
        for name in names:
            original = getattr(module, name, None)
            if original is not None:
                setattr(module, name, _save(original))
                heart.hooked("save")

    return hook


def _save(original: Any) -> Any:
    def save(*args: Any, **kwargs: Any) -> Any:  # whatever torch has
        try:
            phase = -1 if heart.is_strange() else heart.begin(CHECKPOINT, AFTER_ASIDE)
        except Exception as error:  # ours, and not the script's business
            phase = -1
            heart.stop(error)
        _leave_saved(args, kwargs)
        try:
            saved = original(*args, **kwargs)
        except BaseException:
            _leave_saved(args, kwargs, failed=True)
            raise
        finally:
            try:
                heart.end(phase)
            except Exception as error:  # ours, and not the script's business
                heart.stop(error)
        _leave_saved(args, kwargs, done=True)
        heart.tell(wire.W_SAVED_STEP, heart.steps)
        heart.tell(wire.W_SAVED, time.monotonic_ns())
        return saved

    return _in_place_of(original, save)


def _leave_saved(args: Any, kwargs: Any, *, done: bool = False, failed: bool = False) -> None:
    """Leave the name of a file that is saved, was saved, or could not be."""
    try:
        names = (kwargs.get(name) for name in ("f", "filename", "checkpoint_id"))
        target = args[1] if len(args) > 1 else next(filter(None, names), None)
        path = _path_of(target)
        if path is not None:
            writes.note(path)
        if heart.is_strange():
            _saved[""] = 0, 0
            return
        whole = os.path.abspath(path) if path else ""  # in memory, and from there to wherever
        about = (0, 0)
        if done and whole:
            status = os.stat(whole)
            about = status.st_ino, status.st_mtime_ns
        elif whole in _saved and not failed:
            return
        _saved.pop(whole, None)  # the latest last
        _saved[whole] = about
        _leave_saved_files(whole if failed else "")
    except Exception as error:  # ours, and not the script's business
        page.note("where it was saved", error)


def _leave_saved_files(failed: str = "", unread: str = "") -> None:
    saved = [(path, *about) for path, about in list(_saved.items())[-SAVED_FILES:]]
    content = {"version": wire.SAVED_VERSION, "files": saved, "failed": failed, "unread": unread}
    content["limit"] = _limit_reached(failed) if failed else 0
    page.leave(wire.SAVED_SUFFIX, json.dumps(content).encode())


def _limit_reached(path: str) -> int:
    """Return the size that files may have in this process, if a file has it; else 0."""
    try:
        import resource  # noqa: PLC0415 - Windows has none

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return limit if 0 < limit <= os.stat(path).st_size else 0
    except (ImportError, OSError):
        return 0


def _serialization(module: Any) -> None:
    _saves("save")(module)
    module.load = _around_load(module.load, _loaded_file)


def _evaluate(module: Any) -> None:
    # Not train(): it calls itself for every submodule. What ends an evaluation is that training
    # goes on, which backward and the optimizer tell.
    original = module.Module.eval

    def evaluate(self: Any) -> Any:  # whatever torch has
        try:
            if heart.phase == COMPUTE and not heart.is_strange():
                heart.begin(EVALUATE, AFTER_ASIDE)
        except Exception as error:  # ours, and not the script's business
            heart.stop(error)
        return original(self)

    module.Module.eval = _in_place_of(original, evaluate)
    heart.hooked("evaluate")


def _compile(module: Any) -> None:
    phase = -1

    def compile_begins(*_: object) -> None:
        nonlocal phase
        try:
            phase = heart.begin(COMPILE, AFTER_ASIDE)
        except Exception as error:  # ours, and not the script's business
            heart.stop(error)

    def compile_ends(*_: object) -> None:
        try:
            heart.end(phase)
        except Exception as error:  # ours, and not the script's business
            heart.stop(error)

    def register() -> None:
        module.on_compile_start(compile_begins)
        module.on_compile_end(compile_ends)

    register()
    clear = module.callback_handler.clear

    def clear_but_ours() -> None:  # torch._dynamo.reset() calls it
        clear()
        register()

    module.callback_handler.clear = clear_but_ours
    heart.hooked("compile")


def _dynamo(module: Any) -> None:
    _skip.append(module.eval_frame.skip_code)
    _pass_over()


def _pass_over(*functions: Any) -> None:
    """Keep Dynamo from tracing these when it meets them outside a graph."""
    _ours.extend(functions)
    for skip in _skip:
        for function in _ours:
            skip(function.__code__)


def _in_place_of(original: Any, ours: Any) -> Any:  # any function
    """Make ours look like the original, to people, to ``warnings`` and to Dynamo."""
    functools.update_wrapper(ours, original)
    ours.__code__ = ours.__code__.replace(co_filename=script_end.PASSED_OVER)
    ours._torchdynamo_inline = original  # noqa: SLF001 - in a graph it is the original that counts
    _pass_over(ours)
    return ours


def _around_load(original: Any, told: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Any:
    """Return a function that reports the checkpoint from which the script resumes.

    A file counts if it has the state of an optimizer: weights alone may be any model. ``told``
    returns from where a call loads, and the state.
    """

    def load(*args: Any, **kwargs: Any) -> Any:  # whatever torch has
        try:
            loaded = original(*args, **kwargs)
        except Exception:
            _leave_unread(told(args, kwargs, None)[0])
            raise
        try:
            source, state = told(args, kwargs, loaded)
            if heart.steps < wire.LATE and not heart.is_strange():
                if _has_optimizer(state):
                    _leave_checkpoint_read(source, heart.steps)
                else:
                    writes.note(_path_of(source), wire.LOOKED_INTO)
        except Exception as error:  # ours, and not the script's business
            page.note("the checkpoint that was read", error)
        return loaded

    return _in_place_of(original, load)


def _loaded_file(args: Any, kwargs: Any, loaded: Any) -> tuple[Any, Any]:
    return args[0] if args else kwargs.get("f"), loaded


def _loaded_folder(args: Any, kwargs: Any, _: Any) -> tuple[Any, Any]:
    """Return what torch.distributed.checkpoint loads: into the state that it is given."""
    reader = kwargs.get("storage_reader")
    source = kwargs.get("checkpoint_id") or getattr(reader, "path", None)
    return source, args[0] if args else kwargs.get("state_dict")


def _distributed_load(module: Any) -> None:
    module.load = _around_load(module.load, _loaded_folder)


def _has_optimizer(loaded: object, depth: int = 3) -> bool:
    if isinstance(loaded, (list, tuple)):
        return depth > 0 and any(_has_optimizer(each, depth - 1) for each in loaded[:8])
    if not isinstance(loaded, dict):
        return False
    names = [name.lower() for name in loaded if isinstance(name, str)]
    if any("optim" in name for name in names) or {"state", "param_groups"} <= set(names):
        return True
    inner = [each for each in loaded.values() if isinstance(each, (dict, list, tuple))]
    return depth > 0 and any(_has_optimizer(each, depth - 1) for each in inner[:32])


def _leave_unread(source: object) -> None:
    """Leave the name of a file that could not be loaded."""
    try:
        path = _path_of(source)
        if path is not None and not heart.steps:
            _leave_saved_files(unread=os.path.abspath(path))
    except Exception as error:  # ours, and not the script's business
        page.note("what could not be loaded", error)


def _path_of(file: object) -> str | None:
    path = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
    return os.fspath(path) if isinstance(path, (str, os.PathLike)) else None


def _leave_checkpoint_read(source: object, steps: int) -> None:
    """Leave the file's name. One that is read after the first step does not replace another."""
    path = _path_of(source)
    if path is not None and not (steps and _read):
        _read.append(str(path))
        whole = os.path.realpath(path)
        content = {
            "version": wire.READ_VERSION,
            "path": whole,
            "written": os.stat(whole).st_mtime_ns,
            "steps": steps,
        }
        page.leave(wire.READ_SUFFIX, json.dumps(content).encode())


_read: list[str] = []  # checkpoints
_saved: dict[str, tuple[int, int]] = {}  # files, the latest last: inode and time; 0: not yet whole
SAVED_FILES = 40  # that are reported


_skip: list[Callable[[CodeType], None]] = []  # Dynamo's own way to do so, once it is imported
_ours = [
    function
    for owner in (Heart, LossMonitor, page)
    for function in vars(owner).values()
    if isinstance(function, FunctionType)
]
_HOOKS: dict[str, Callable[[Any], None]] = {
    "torch.autograd": _backward,
    "torch.nn.modules.module": _evaluate,
    "torch.optim.optimizer": _optimizer,
    "torch.serialization": _serialization,
    "torch.utils.data.dataloader": _loader,
    "torch.distributed.checkpoint.state_dict_loader": _distributed_load,
    "torch.distributed.checkpoint.state_dict_saver": _saves("save", "async_save"),
    "torch._dynamo": _dynamo,
    "torch._dynamo.callback": _compile,
    "concurrent.futures.thread": lambda _: script_end.be_first(heart),
    "safetensors.torch": _saves("save_file"),
}
