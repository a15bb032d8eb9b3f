"""Checkpoints that can be trusted.

::

    checkpointer = rocsteady_train.Checkpointer("checkpoints")
    state = {"model": model, "optimizer": optimizer, "progress": progress}   # progress: a dict
    step = checkpointer.restore(state) or 0
    ...
    checkpointer.save(step, state)      # training waits for a copy in memory, not for the disk

Each entry of a state has ``state_dict`` and ``load_state_dict``, or is a dict, which is filled in
place. What is written is the state at the moment of the call. A save that fails is told in the log
and never ends the training; nothing that is whole is ever written to again.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rocsteady_train.checkpoints import folder as folders
from rocsteady_train.checkpoints import tensor_files
from rocsteady_train.checkpoints.folder import (
    ASIDE,
    LATEST,
    UNFINISHED,
    BrokenError,
    CheckpointError,
    FileFact,
    Manifest,
    RankState,
    is_dict,
)
from rocsteady_train.checkpoints.folder_changes import (
    Room,
    is_full,
    locked,
    point_to,
    publish,
    remove,
    set_aside,
)
from rocsteady_train.checkpoints.state import StateParts, fill, reason, state_of
from rocsteady_train.checkpoints.tensor_files import Buffer, Buffers, local
from rocsteady_train.loop import supervisor_link


class Ranks:
    def __init__(self) -> None:
        self.group = own_group()
        self.rank, self.world = 0, 1
        if self.group is not None:
            self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def as_first(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - what is asked for
        """Return what rank 0 finds, or raise on all ranks what it meets."""
        found: list[Any] = [None, ""]
        if self.rank == 0:
            try:
                found[0] = ask()
            except Exception as error:  # noqa: BLE001 - of any file system
                found[1] = reason(error)
        if self.group is not None:
            dist.broadcast_object_list(found, src=0, group=self.group)
        if found[1]:
            raise CheckpointError(found[1])
        return found[0]

    def of_all(self, text: str) -> list[str]:
        found: list[Any] = [text] * self.world
        if self.group is not None:
            dist.all_gather_object(found, text, group=self.group)
        return found

    def meet(self) -> None:
        if self.group is not None:
            dist.barrier(group=self.group)


def own_group() -> Any:  # noqa: ANN401 - a group of torch's
    """Make a group of all ranks that does not meet the training's own; None: there is one rank."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return dist.new_group(backend="gloo")
    return None


ASK_EVERY = 1.0  # seconds between two questions, about
MAX_STEPS = 1000  # steps between them


class Agreement:
    """Asks all ranks now and then whether to save: they save together, or not at all.

    One that says yes is enough.
    """

    def __init__(self) -> None:
        # A group of its own: a save that is under way speaks in another, from another thread.
        self._group = own_group()
        self._every = 1  # steps between two questions, the same on all ranks
        self._steps = 0
        self._wanted = False
        self._asked = time.monotonic()

    @property
    def alone(self) -> bool:
        return self._group is None

    def at_once(self, wanted: bool) -> bool:  # noqa: FBT001 - it is the question
        """Return whether any rank says yes. All of them wait for the answer."""
        if self._group is None:
            return wanted
        answer = torch.tensor([int(wanted)])
        dist.all_reduce(answer, op=dist.ReduceOp.MAX, group=self._group)
        return bool(answer[0])

    def on(self, wanted: bool) -> bool:  # noqa: FBT001 - it is the question
        """Return whether all ranks do it now. Called by each of them after each step."""
        if self._group is None:
            return wanted
        self._wanted = self._wanted or wanted
        self._steps += 1
        if self._steps < self._every:
            return False
        now = time.monotonic()
        pace = self._steps / max(now - self._asked, 1e-6)
        following = max(1, min(MAX_STEPS, int(pace * ASK_EVERY)))
        answer = torch.tensor([int(self._wanted), following])
        dist.all_reduce(answer, op=dist.ReduceOp.MAX, group=self._group)
        agreed, self._every = bool(answer[0]), int(answer[1])
        self._steps, self._wanted, self._asked = 0, False, now
        return agreed


log = logging.getLogger("rocsteady")
_NUMBERS = re.compile(r"[0-9][0-9.,]*(?: (?:bytes|[KMGT]i?B))?")  # that differ for one cause


class Checkpointer:
    """Writes and restores the checkpoints of one training, in one folder."""

    def __init__(
        self,
        folder: str | os.PathLike[str] = "checkpoints",
        *,
        keep: int = 3,
        keep_every: int = 0,
    ) -> None:
        """Open a folder for checkpoints.

        ``keep`` of the newest are kept, and one in ``keep_every`` for good.
        """
        if keep < 1:
            raise CheckpointError("keep: at least one checkpoint must be kept")
        self.folder = Path(folder)
        self.stall = 0.0  # seconds that training waited for the last save
        self.writing = 0.0  # seconds that the last one took until it was on the disk
        self.passed_over: list[str] = []  # by the last restore, each with the reason
        self.failed = ""  # why the last save failed; "" if it did not
        self._keep, self._keep_every = keep, keep_every
        self._room = Room(self.folder, keep_every, self._say)
        self._number = 0  # of the newest one
        self._buffers = Buffers()
        self._thread: threading.Thread | None = None
        self._logged: set[str] = set()
        self._dicts: set[str] = set()  # entries that a restore fills as dicts
        self.newest: int | None = None  # step that is on the disk, or was restored
        self._asked: int | None = None  # step of the last save, which may still be under way
        self._ranks = Ranks()
        if self._ranks.world > 1:
            _distributed()  # now, not when training waits for the first save
        self._lock: int | None = None
        self._ranks.as_first(self._open)

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        *,
        wait: bool = False,
        per_rank: Collection[str] = (),
    ) -> None:
        """Copy a state to memory and write it while training goes on.

        ``wait``: return when it is on the disk, and raise CheckpointError if it could not be saved.
        Without, a failure is a warning in the log. With several ranks all of them call it. Entries
        named in ``per_rank`` are each rank's own.
        """
        if self._asked is not None and step <= self._asked:
            self.wait()  # it may have failed
        if self.newest is not None and step <= self.newest:
            self._say(
                f"step {step} is not saved: a checkpoint of step {self.newest} already exists"
            )
            return
        began = time.monotonic()
        with supervisor_link.saving():
            save: _Save | str
            try:
                save = self._staged(state, per_rank)
            except Exception as error:  # noqa: BLE001 - a save that fails never ends the training
                save = reason(error)
            self._asked = step
            self.stall = time.monotonic() - began
            self._thread = threading.Thread(
                target=self._write, args=(step, save, self._thread), name="rocsteady-checkpoint"
            )
            self._thread.start()
            if wait:
                self.wait()
                if self.failed:
                    raise CheckpointError(f"step {step} was not saved: {self.failed}")

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Wait, and let another process use the folder."""
        self.wait()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def restore(
        self,
        state: Mapping[str, Any],
        *,
        per_rank: Collection[str] = (),
        start: Path | None = None,
    ) -> int | None:
        """Fill a state from the newest checkpoint that is whole, and return its step.

        None: there is none. Broken ones are set aside and named. ``start`` is the checkpoint to
        begin with; newer ones are then set aside.
        """
        self.wait()
        self.passed_over = []
        supervisor_link.resumes(self.folder)
        asked = supervisor_link.resume_from()
        if asked is not None and asked.parent.absolute() == self.folder.absolute():
            start = start or asked
        self._dicts = {
            name for name, value in state.items() if not hasattr(value, "load_state_dict")
        }
        path = self._newest_whole(start)
        if path is None:
            return None
        own, shared = self._skeletons(path)
        fill(state, path, shared=shared, own=own, per_rank=per_rank, group=self._ranks.group)
        manifest = folders.read_manifest(path)
        self.newest, self._number = manifest.step, manifest.number
        return manifest.step

    def newest_path(self) -> Path | None:
        found = self._ranks.as_first(lambda: folders.steps(self.folder))
        return Path(found[0][1]) if found else None

    def set_newest_aside(self, why: str) -> None:
        """Leave the newest checkpoint out, so that the one before it is restored next."""
        if (path := self.newest_path()) is not None:
            self._set_aside(path, why)

    def _newest_whole(self, start: Path | None) -> Path | None:
        """Return the newest checkpoint that is whole, and set aside those before it."""
        for step, path in self._ranks.as_first(lambda: folders.steps(self.folder)):
            wrong = self._wrong(path)
            if not wrong and start is not None and step > (folders.step_of(start) or 0):
                wrong = f"is newer than {start.name}, which was asked for"
            if not wrong:
                return Path(path)
            self._set_aside(path, wrong)
        return None

    def _staged(self, state: Mapping[str, Any], per_rank: Collection[str]) -> _Save:
        parts = StateParts()
        skeleton = {
            name: parts.take(
                state_of(value), f"rank-{self._ranks.rank}/{name}" if name in per_rank else name
            )
            for name, value in state.items()
        }
        for missed in parts.missed:
            self._say_once(
                f"not included in the checkpoint, because it cannot be written: {missed}"
            )
        here = {name: local(tensor) for name, tensor in parts.tensors.items()}
        size = sum(int(tensor.numel() * tensor.element_size()) for tensor in here.values())
        buffer = self._buffers.take()
        try:
            copies, planner = buffer.copy(here), None
            if self._ranks.world > 1 or not tensor_files.all_plain(parts.tensors.values()):
                planner = _distributed().SavePlanner(parts.tensors, copies)
            rest = {"world": self._ranks.world, "state": skeleton}
            return _Save(copies=copies, planner=planner, skeleton=rest, buffer=buffer, size=size)
        except BaseException:
            self._buffers.give_back(buffer)
            raise

    def _write(self, step: int, save: _Save | str, previous: threading.Thread | None) -> None:
        """Write what was copied; in a thread of its own, after the one before."""
        if previous is not None:
            previous.join()
        try:
            self._with_room(step, self._all_have(save))
        except BaseException as error:  # noqa: BLE001 - DCP's own is one; a failed save never kills
            before, self.failed = self.failed, reason(error)
            supervisor_link.save_failed(step)
            if _NUMBERS.sub("", before) != _NUMBERS.sub("", self.failed):
                again = "later failures for the same reason are not reported"
                self._say(f"step {step} was not saved: {self.failed}; {again}")
            return
        finally:
            if isinstance(save, _Save):
                self._buffers.give_back(save.buffer)

    def _with_room(self, step: int, save: _Save) -> None:
        """Write it; if there is no room, the oldest checkpoint makes way for it."""
        self._ranks.as_first(lambda: self._room.make(save.size, self.newest))
        try:
            self._to_disk(step, save)
        except OSError as error:  # of one process; several find room for the next one
            if not is_full(error) or not self._room.remove_oldest(self.newest):
                raise
            self._with_room(step, save)

    def _to_disk(self, step: int, save: _Save) -> None:
        began = time.monotonic()
        unfinished = self.folder / f"{UNFINISHED}{folders.name_of(step)}"

        def commit(facts: list[FileFact]) -> None:
            self._number += 1
            publish(unfinished, step, self._number, facts)

        try:
            if save.planner is None:
                tensor_files.save_plain(unfinished, save.copies, save.skeleton, commit)
            else:
                module = _distributed()
                rank, group = self._ranks.rank, self._ranks.group
                writer = module.CheckpointWriter(unfinished, rank, save.skeleton, commit)
                module.save(writer, save.planner, group)
        except BaseException:
            if self._ranks.rank == 0:
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
        self.newest = step
        self.writing, self.failed = time.monotonic() - began, ""
        supervisor_link.save_failed(None)
        supervisor_link.saved(step)
        if self._ranks.rank == 0:
            try:
                point_to(self.folder / folders.name_of(step))
                self._prune(step)
            except OSError as error:
                self._say(f"step {step} is saved, but {LATEST} may be older: {reason(error)}")

    def _all_have(self, save: _Save | str) -> _Save:
        """See to it that every rank has its copy: they write together, or not at all."""
        found = self._ranks.of_all(save if isinstance(save, str) else "")
        why = next((f"rank {rank}: {text}" for rank, text in enumerate(found) if text), "")
        if why or isinstance(save, str):
            raise CheckpointError(why if self._ranks.world > 1 else found[0])
        return save

    def _prune(self, step: int) -> None:
        there = folders.steps(self.folder)
        if there[0][0] > step:
            self._say_once(
                f"{self.folder} also has {there[0][1].name}, from which this training did not"
                " resume"
            )
        for other, path in there[self._keep :]:
            if other != step and not (self._keep_every and self._room.is_kept(path)):
                remove(path)

    def _skeletons(self, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read this rank's own state that is no tensor, and that of rank 0, which all share."""
        first, own = self._states(path, folders.read_manifest(path))
        if first.world != self._ranks.world:
            self._say_once(
                f"{path.name} was written by {first.world} ranks and is read by"
                f" {self._ranks.world}: per-rank state may come from a different rank"
            )
        return own.state, first.state

    def _states(self, path: Path, manifest: Manifest) -> tuple[RankState, RankState]:
        """Read the states of rank 0 and of this rank, or say why they cannot be restored."""
        plan = folders.read_plan(path, manifest)
        first = folders.read_state(path, manifest, 0, plan)
        own = folders.read_state(path, manifest, self._ranks.rank % first.world, plan)
        if own.state.keys() != first.state.keys():
            raise BrokenError("has ranks with different entries")
        for name in sorted(self._dicts & first.state.keys()):
            if not (is_dict(first.state[name]) and is_dict(own.state[name])):
                raise BrokenError(f"has a {name!r} that is no dict")
        return first, own

    def _wrong(self, path: Path) -> str:
        """Return what is wrong with a checkpoint; each rank reads its share of the files."""
        wrong = ""
        try:
            manifest = folders.read_manifest(path)
            folders.check(path, manifest.files[self._ranks.rank :: self._ranks.world])
            self._states(path, manifest)
        except BrokenError as error:
            wrong = str(error)
        return next(filter(None, self._ranks.of_all(wrong)), "")

    def _set_aside(self, path: Path, why: str) -> None:
        self.passed_over.append(f"{path.name} {why}")
        self._say(f"{path} {why}; it is skipped, and kept in {ASIDE}")
        if self._ranks.rank == 0:
            set_aside(path)
        self._ranks.meet()

    def _open(self) -> None:
        """Keep others out, and remove what a process that was killed has left half done."""
        self._lock = locked(self.folder)
        for path in self.folder.glob(f"{UNFINISHED}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _say(self, text: str) -> None:
        if self._ranks.rank == 0:
            log.warning("rocsteady: %s.", text)

    def _say_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            self._say(text)


@dataclass(frozen=True)
class _Save:
    copies: dict[str, Any]
    planner: Any  # None: the tensors are plain, and of this process alone
    skeleton: dict[str, Any]
    buffer: Buffer
    size: int  # bytes of this rank's tensors


def _distributed() -> Any:  # noqa: ANN401 - a module
    """Return what needs torch.distributed.checkpoint, which takes as long to import as torch."""
    return importlib.import_module("rocsteady_train.checkpoints.dcp_storage")
