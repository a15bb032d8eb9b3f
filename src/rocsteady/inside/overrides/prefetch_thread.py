"""The thread that loads batches, and what it must do so that nobody notices it."""

from __future__ import annotations

import _thread
import atexit
import os
import queue
import sys
import threading
import time
import weakref
from typing import Any

from ..heartbeat import page, script_end

AT_EXIT = 5.0  # seconds for the batch that is being loaded then, as torch gives a worker
AT_FORK = 5.0


def passed_over(function: Any) -> Any:
    """Have a function's frames left out of tracebacks, and taken for those of the user's loader."""
    function.__code__ = function.__code__.replace(co_filename=script_end.PASSED_OVER)
    return function


class _Turn(threading.local):
    """Whether this thread is loading: a dataset may have a loader of its own."""

    loading = False
    forking = False


turn = _Turn()
_one_at_a_time = threading.Lock()  # datasets of several loaders may read from one file
_threads: weakref.WeakSet[LoadingThread] = weakref.WeakSet()


class Fetch:
    """Loads one batch as torch does without workers. It does not keep the iterator alive."""

    def __init__(self, iterator: Any) -> None:
        self._fetch = iterator._dataset_fetcher.fetch  # noqa: SLF001
        self._pin = iterator._pin_memory  # noqa: SLF001
        self._device = iterator._pin_memory_device  # noqa: SLF001

    @passed_over
    def __call__(self, index: Any) -> Any:
        """Load it, when nobody else loads."""
        with _one_at_a_time:
            turn.loading = True
            try:
                data = self._fetch(index)
                if self._pin:
                    data = sys.modules["torch.utils.data._utils.pin_memory"].pin_memory(
                        data, self._device
                    )
                return data
            finally:
                turn.loading = False


class Batch:
    """One batch that is asked for."""

    __slots__ = ("asked", "data", "done", "index", "loaded")

    def __init__(self, index: Any) -> None:
        self.index = index
        self.asked: LoadingThread | None = None
        self.data: Any = None
        self.loaded = False
        self.done = _thread.allocate_lock()
        self.done.acquire()


class LoadingThread:
    """The thread of one iterator. It ends when the iterator is let go."""

    def __init__(self, fetch: Fetch, *, pin: bool) -> None:
        self._fetch = fetch
        self._asked: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._closed = False
        self._pid = os.getpid()
        torch: Any = sys.modules["torch"]
        self._intra_op = torch.get_num_threads()
        uses_gpu = torch.cuda.is_initialized() or (pin and torch.cuda.is_available())
        self._device = torch.cuda.current_device() if uses_gpu else None
        self._thread = threading.Thread(target=self._run, name="loads ahead", daemon=True)
        self._thread.start()
        _threads.add(self)

    def loads(self) -> bool:
        """Tell whether it will load what it is asked for: in a forked process it will not."""
        return self._pid == os.getpid() and not self._closed

    def ask(self, batch: Batch) -> None:
        """Have a batch loaded."""
        batch.asked = self
        self._asked.put(batch)

    def close(self) -> None:
        """Load no more, and end."""
        self._closed = True
        self._asked.put(None)

    def join(self, seconds: float) -> None:
        """Wait for its end."""
        self._thread.join(max(seconds, 0.0))

    @passed_over
    def _run(self) -> None:
        self._be_like_a_worker()
        while True:
            batch = self._asked.get()
            if batch is None or self._closed:
                return
            try:
                batch.data = self._fetch(batch.index)
                batch.loaded = True
            except BaseException:  # noqa: S110 - the training thread tries again
                pass
            batch.done.release()
            del batch  # it may be large, and the next one may be long in coming

    def _be_like_a_worker(self) -> None:
        """Compute with one thread, so that batches are those of a worker, bit for bit."""
        try:
            torch: Any = sys.modules["torch"]
            torch.get_num_threads()  # a thread takes the common number when it first asks
            torch.set_num_threads(1)
            # That is now the common number too, for threads to come; have another set it back.
            after = threading.Thread(target=torch.set_num_threads, args=(self._intra_op,))
            after.start()
            after.join()
            if self._device is not None:
                torch.cuda.set_device(self._device)
        except Exception as error:  # ours; batches are loaded all the same
            page.note("loading ahead", error)


def install() -> None:
    """Take care of forks and of the exit."""
    atexit.register(_at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_before_fork,
            after_in_parent=_after_fork_in_parent,
            after_in_child=_after_fork_in_child,
        )


def _before_fork() -> None:
    """Let the batch that is being loaded come to its end: it may hold locks of the dataset."""
    turn.forking = not turn.loading and _one_at_a_time.acquire(timeout=AT_FORK)


def _after_fork_in_parent() -> None:
    if turn.forking:
        _one_at_a_time.release()


def _after_fork_in_child() -> None:
    global _one_at_a_time, _threads  # noqa: PLW0603 - whoever held or iterated them is not here
    _one_at_a_time = threading.Lock()
    _threads = weakref.WeakSet()


def _at_exit() -> None:
    """Leave no thread in the middle of a batch: Python could not end it without a crash."""
    until = time.monotonic() + AT_EXIT
    for thread in list(_threads):
        thread.close()
    for thread in list(_threads):
        thread.join(until - time.monotonic())
