"""Settings of every DataLoader that the script makes with workers.

A loader that the script makes without workers stays so: it may have its reasons. One that a
framework makes again from the attributes of another is known by its dataset.
"""

from __future__ import annotations

import contextlib
import copyreg
import inspect
import io
import pickle
import sys
import weakref
from time import monotonic
from typing import Any

from ..heartbeat import page
from ..heartbeat.loader_facts import MARK, LoaderRecorder, spelled
from .strategy import Record

NAMES = frozenset(("workers", "worker_context", "persistent_workers", "prefetch_factor"))
SENT = ("dataset", "collate_fn", "worker_init_fn")  # to the workers
WORKERS_ONLY = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
LoaderArguments = tuple[int, str]  # workers and context, as the script says
UNGUARDED = 'the main module has no `if __name__ == "__main__":` around what runs'


class LoaderSettings:
    """Settles the arguments of loaders."""

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
    """Takes what is written, up to a bound."""

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
