"""Tensors copied to host memory, so that training goes on while they are written.

One buffer holds all tensors of a save, one after the other. There are two, made when they are first
needed and used again and again: one may be written to disk while the next save is copied into the
other. Nothing is ever copied on the device.
"""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from rocsteady_train.checkpoints.folder import BLOCK, THREADS, CheckpointError

PATIENCE = 120.0  # seconds for a save that is still being written
ALIGNED = 64  # bytes: a cache line, and a multiple of every element's size


class Buffer:
    """Host memory for one save."""

    def __init__(self) -> None:
        self.memory: Any = torch.empty(0, dtype=torch.uint8)

    def copy(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Copy tensors, each to its place, and return the copies."""
        places, size = _places(tensors)
        on_device = any(tensor.device.type != "cpu" for tensor in tensors.values())
        self._allocate(size, on_device)
        copies = {}
        moves: list[tuple[int, int, int]] = []
        for name, tensor in tensors.items():
            length = tensor.numel() * tensor.element_size()
            place = self.memory[places[name] : places[name] + length]
            copies[name] = place.view(tensor.dtype).view(tensor.shape)
            if _is_plain(tensor):
                moves += _moves(place.data_ptr(), tensor.data_ptr(), length)
            else:
                copies[name].copy_(tensor, non_blocking=True)
        # torch would share out each tensor among its threads, and wait for all of them each time.
        if size <= BLOCK:  # threads would take longer to start
            for move in moves:
                ctypes.memmove(*move)
        elif moves:
            with ThreadPoolExecutor(THREADS) as pool:
                for _ in pool.map(lambda move: ctypes.memmove(*move), moves):
                    pass  # an error is raised here
        if on_device:
            torch.accelerator.synchronize()
        return copies

    def prepare(self, tensors: dict[str, Any]) -> None:
        """Allocate memory for tensors, and touch it, so that the first copy need not."""
        on_device = any(tensor.device.type != "cpu" for tensor in tensors.values())
        if self._allocate(_places(tensors)[1], on_device):
            ctypes.memset(self.memory.data_ptr(), 0, self.memory.numel())

    def _allocate(self, size: int, pinned: bool) -> bool:  # noqa: FBT001 - one of two
        """See to it that there is enough memory; tell whether it is new."""
        if self.memory.numel() >= size and (not pinned or self.memory.is_pinned()):
            return False
        self.memory = torch.empty(0, dtype=torch.uint8)  # the old one goes first
        self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        return True


def _places(tensors: dict[str, Any]) -> tuple[dict[str, int], int]:
    """Return where each tensor begins, and how large they are together."""
    places, size = {}, 0
    for name, tensor in tensors.items():
        places[name] = size
        size += -(-tensor.numel() * tensor.element_size() // ALIGNED) * ALIGNED
    return places, size


def _is_plain(tensor: Any) -> bool:  # noqa: ANN401 - a tensor
    """Return whether a tensor lies in host memory as it will in the file."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _moves(to: int, start: int, length: int) -> list[tuple[int, int, int]]:
    return [(to + at, start + at, min(BLOCK, length - at)) for at in range(0, length, BLOCK)]


class Buffers:
    """Two buffers, each in use by at most one save."""

    def __init__(self) -> None:
        self._free = [Buffer(), Buffer()]
        self._changed = threading.Condition()

    def take(self) -> Buffer:
        """Return a buffer that is free; waits for the older save, but not for a stuck disk."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._free, PATIENCE):
                raise CheckpointError("the two before it are still being written")
            return self._free.pop()

    def prepare(self, tensors: dict[str, Any]) -> None:
        """Make one ready in a thread of its own; a save meanwhile takes the other."""

        def work() -> None:
            buffer = self.take()
            try:
                buffer.prepare(tensors)
            except (MemoryError, RuntimeError):
                pass  # the save will tell
            finally:
                self.give_back(buffer)

        threading.Thread(target=work, name="rocsteady-buffer", daemon=True).start()

    def give_back(self, buffer: Buffer) -> None:
        """Let a buffer be used again."""
        with self._changed:
            self._free.append(buffer)  # the next save takes this one, whose pages are there
            self._changed.notify()
