"""Loads the batches of a DataLoader ahead in one thread, where its workers were taken away.

The sampler is asked in the training thread. Only what draws nothing from the global random
generators is done ahead of time: the first batches are loaded in turn, and the generators compared.
So the training's own random stream is that of a loader without workers, and the batches are those
that workers give. What fails in the thread is tried again in the training thread, and fails there,
at the batch where it belongs.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from typing import Any

from ..heartbeat import page
from ..heartbeat.loader_facts import MARK, LoaderRecorder
from .prefetch_thread import Batch, Fetch, LoadingThread, passed_over, turn
from .random_generators import drawn_from, states
from .strategy import Record

MOST_AHEAD = 4  # batches; fewer if the script's own workers were less ahead
TRIED = 2  # batches that are loaded in turn first
AHEAD = "_rocsteady_ahead"  # on an iterator
QUIET = "_rocsteady_quiet"  # on a loader, once tried: whether it draws nothing

SAME = "one thread loads ahead; the dataset draws no random numbers, so its batches are the same"
IN_TURN = "batches are loaded in turn, without the thread"


class _Ahead:
    """What stands between one iterator and its batches."""

    def __init__(self, loading: Loading, loader: Any, iterator: Any) -> None:
        self._loading = loading
        self._loader = loader
        workers, _, prefetch = getattr(loader, MARK)
        self._most = max(1, min(workers * prefetch, MOST_AHEAD))
        self._fetch = Fetch(iterator)
        self._pin = bool(iterator._pin_memory)  # noqa: SLF001
        self._thread: LoadingThread | None = None
        self._batches: deque[Batch | Exception] = deque()
        self._tried = 0

    @passed_over
    def next(self, iterator: Any) -> Any:
        """Give the next batch."""
        quiet = getattr(self._loader, QUIET, None)
        if quiet is None:
            return self._try(iterator)
        if not self._batches:
            index = self._index(iterator)
            if not quiet:
                self._end_thread()
                return self._fetch(index)
            self._batches.append(self._ask(iterator, index))
        batch = self._batches.popleft()
        if quiet:
            self._ask_ahead(iterator)
        if isinstance(batch, Exception):
            raise batch
        return self._take(batch)

    @passed_over
    def _try(self, iterator: Any) -> Any:
        """Load a batch in turn, and see whether the dataset or the sampler draws."""
        before = states()
        index = self._index(iterator)
        between = states()
        data = self._take(self._ask(iterator, index))
        who, drawn = "dataset", drawn_from(between, states())
        self._loading.facts.draws(does=bool(drawn))
        if self._tried and not drawn:  # a sampler may draw at its first index, which is in turn
            who, drawn = "sampler", drawn_from(before, between)
        self._tried += 1
        if drawn:
            self._settle(f"the {who} draws from {drawn}; {IN_TURN}")
        elif self._tried == TRIED:
            self._settle("")
        return data

    @passed_over
    def _index(self, iterator: Any) -> Any:
        try:
            return iterator._next_index()  # noqa: SLF001
        except StopIteration:
            self._end_thread()
            raise

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    def _ask(self, iterator: Any, index: Any) -> Batch:
        batch = Batch(index)
        try:
            if self._thread is None or not self._thread.loads():
                self._thread = LoadingThread(self._fetch, pin=self._pin)
                weakref.finalize(iterator, self._thread.close).atexit = False
            self._thread.ask(batch)
        except RuntimeError:  # at exit, or where there are too many
            self._thread = None
            self._settle(f"no thread can be started; {IN_TURN}")
        return batch

    @passed_over
    def _ask_ahead(self, iterator: Any) -> None:
        while len(self._batches) < self._most:
            before = states()
            try:
                self._batches.append(self._ask(iterator, iterator._next_index()))  # noqa: SLF001
            except StopIteration:
                return
            except Exception as error:  # the sampler's own, for when its turn comes
                self._batches.append(error)
            drawn = drawn_from(before, states())
            if drawn:
                self._settle(f"the sampler once drew from {drawn} ahead of time; now {IN_TURN}")
                return

    @passed_over
    def _take(self, batch: Batch) -> Any:
        is_done = batch.asked is not None and batch.asked.loads()
        if is_done:
            batch.done.acquire()
        if batch.loaded:
            return batch.data
        data = self._fetch(batch.index)  # if the dataset is at fault, here is where it fails
        if is_done:
            self._settle(f"the dataset fails in another thread; {IN_TURN}")
        return data

    def _settle(self, why_not: str) -> None:
        """Load ahead from now on, or do not."""
        if getattr(self._loader, QUIET, None) is False:
            return
        setattr(self._loader, QUIET, not why_not)
        if why_not:
            self._loading.record.refused("loader_thread", why_not)
        else:
            self._loading.record.applied("loader_thread", SAME)


class Loading:
    """Puts it in force."""

    def __init__(self, record: Record, facts: LoaderRecorder) -> None:
        self.record = record
        self.facts = facts

    def around_init(self, original: Any) -> Any:
        """Make an iterator without workers load ahead, where its loader had some."""

        def __init__(iterator: Any, loader: Any) -> None:  # noqa: N807 - it becomes that method
            original(iterator, loader)
            try:
                if getattr(loader, MARK, None) is not None:
                    self._attach(loader, iterator)
            except Exception as error:  # ours; it then loads as torch does
                page.note("loading ahead", error)

        return __init__

    @staticmethod
    def around_next(original: Any) -> Any:
        """Make its ``_next_data`` take what was loaded ahead."""

        def _next_data(iterator: Any) -> Any:
            ahead = vars(iterator).get(AHEAD)
            if ahead is None or turn.loading:
                return original(iterator)
            return ahead.next(iterator)

        return _next_data

    def _attach(self, loader: Any, iterator: Any) -> None:
        why_not = ""
        if iterator._dataset_kind != 0:  # noqa: SLF001 - 0 is "map-style"
            why_not = f"the dataset is iterable; {IN_TURN}"
        elif _has_mode(sys.modules["torch"]):
            why_not = f"a mode of torch, such as a default device, holds in one thread; {IN_TURN}"
        if not why_not:
            setattr(iterator, AHEAD, _Ahead(self, loader, iterator))
        elif not hasattr(loader, QUIET):
            setattr(loader, QUIET, False)
            self.record.refused("loader_thread", why_not)


def _has_mode(torch: Any) -> bool:
    lengths = ("_len_torch_function_stack", "_len_torch_dispatch_stack")
    return any(getattr(torch._C, name, int)() for name in lengths)  # noqa: SLF001
