"""Whether what a loader would send to a new process can be pickled, tried within bounds.

Tensors are skipped: they go through shared memory, and pickling one here would copy it.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from time import monotonic
from typing import Any

MOST_BYTES = 256 * 1024 * 1024
MOST_SECONDS = 2.0


class TooMuch(Exception):  # noqa: N818 - an answer, and not an error
    """It may be possible, and would cost too much at each start of a worker."""


def why_not(thing: Any) -> str:
    """Say why a thing cannot be pickled; "" if it can."""
    try:
        _Trial().dump(thing)
    except TooMuch as error:
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
        if self._written > MOST_BYTES:
            raise TooMuch(f"{MOST_BYTES >> 20} MiB")
        return size


class _Trial(pickle.Pickler):
    """Pickles as multiprocessing does when it starts a process."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=pickle.HIGHEST_PROTOCOL)
        reduction: Any = sys.modules["multiprocessing.reduction"]  # torch has imported it
        added = reduction.ForkingPickler._extra_reducers  # noqa: SLF001
        self.dispatch_table = {**copyreg.dispatch_table, **added}
        self._until = monotonic() + MOST_SECONDS
        torch: Any = sys.modules["torch"]
        self._shared = (torch.Tensor, torch.storage.UntypedStorage, torch.storage.TypedStorage)

    def persistent_id(self, thing: Any) -> str | None:
        """Be asked of each thing: the C code of pickle calls this first."""
        if isinstance(thing, self._shared):
            if getattr(thing, "requires_grad", False) and not thing.is_leaf:
                raise ValueError("a tensor in it is part of a graph")
            return "tensor"
        if monotonic() > self._until:
            raise TooMuch(f"{MOST_SECONDS:g} s of pickling")
        return None
