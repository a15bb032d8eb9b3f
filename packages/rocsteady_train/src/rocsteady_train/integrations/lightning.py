"""Lightning.

::

    checkpoints = ModelCheckpoint(dirpath="checkpoints", every_n_train_steps=100)
    trainer = Trainer(callbacks=[checkpoints, RocsteadyCallback()], ...)
    trainer.fit(model, ckpt_path=newest_checkpoint("checkpoints"))
"""

from __future__ import annotations

import contextlib
import os
import pickletools
import sys
from math import isfinite
from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from rocsteady_train.checkpoints import integrity as file_integrity
from rocsteady_train.checkpoints.integrity import EVERYTHING, log, newest_whole, pickles_in
from rocsteady_train.loop import supervisor_link

PATTERN = "*.ckpt"
SAVED = "rocsteady-step={step}.ckpt"  # what is saved because the supervisor asked
STEP, OPTIMIZER = "global_step", b"optimizer_states"  # keys of a checkpoint
INTEGERS = ("BININT", "BININT1", "BININT2", "INT", "LONG1", "LONG")
MEMO = ("BINPUT", "LONG_BINPUT", "MEMOIZE", "PUT")  # may stand between a key and its value
PICKLE_LIMIT = 1 << 30  # bytes
SIGTERM_CODE = 143  # as a shell tells that SIGTERM ended a program


def newest_checkpoint(dirpath: str | os.PathLike[str]) -> str | None:
    """Return the checkpoint file of the highest step that is whole, for ``ckpt_path``.

    None: there is none, and the training begins at its beginning. Give each training a folder of
    its own. Under ``rocsteady run`` the supervisor is told that this script goes on by itself.
    Sharded checkpoints, which are folders, are not looked at.
    """
    root = Path(dirpath)
    steps = [(step_of(path), path) for path in root.glob(PATTERN) if path.is_file()]
    # One whose step cannot be read comes first, so that it is named.
    found = [(sys.maxsize if step is None else step, path) for step, path in steps]
    return newest_whole(root, PATTERN, found, what_is_wrong)


def what_is_wrong(checkpoint: Path) -> str:
    if wrong := file_integrity.wrong_with_model(checkpoint, EVERYTHING):
        return wrong
    if step_of(checkpoint) is None:
        return "is not a checkpoint of Lightning"
    whole = any(OPTIMIZER in pickled for pickled in pickles_in(checkpoint, PICKLE_LIMIT))
    return "" if whole else "has weights only"


def step_of(checkpoint: Path) -> int | None:
    """Read the step from a checkpoint, without running what is in it."""
    with contextlib.suppress(ValueError):  # cut off, or damaged
        operations = pickletools.genops(next(pickles_in(checkpoint, PICKLE_LIMIT), b""))
        if not any(argument == STEP for _, argument, _ in operations):
            return None
        for operation, argument, _ in operations:
            if isinstance(argument, int) and operation.name in INTEGERS:
                return argument
            if operation.name not in MEMO:
                break
    return None


class RocsteadyCallback(Callback):
    """Tells the supervisor of the work, and saves when it asks, or when SIGTERM comes.

    With several ranks these would have to agree on the step at which they save. There the
    ``every_n_train_steps`` of ModelCheckpoint is what counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0  # by the supervisor, for a save
        self._last: Path | None = None  # what we saved

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002 - a hook
        supervisor_link.total(_total(trainer))
        supervisor_link.began_at(trainer.global_step)
        self._asked = supervisor_link.save_is_wanted()

    def on_train_batch_end(
        self,
        trainer: Any,  # noqa: ANN401
        pl_module: Any,  # noqa: ANN401, ARG002
        outputs: Any,  # noqa: ANN401, ARG002
        batch: Any,  # noqa: ANN401, ARG002
        batch_idx: int,
    ) -> None:
        """Save, if that is wanted, and if no gradients are being added up."""
        asked = supervisor_link.save_is_wanted()
        stepped = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if asked != self._asked and stepped and trainer.world_size == 1:
            self._asked = asked
            self._save(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401, ARG002
        """Save where SIGTERM ended this, and have that be seen outside: Lightning ends with 0."""
        if trainer.received_sigterm and isinstance(exception, SystemExit) and not exception.code:
            if trainer.world_size == 1:
                self._save(trainer)
            exception.code = SIGTERM_CODE

    def _save(self, trainer: Any) -> None:  # noqa: ANN401
        written = trainer.checkpoint_callback
        folder = getattr(written, "dirpath", None)
        if folder is None:
            return  # without ModelCheckpoint there is no place that anybody would look at
        path = Path(folder) / SAVED.format(step=trainer.global_step)
        with supervisor_link.saving():
            try:
                trainer.save_checkpoint(path)
            except (OSError, RuntimeError) as error:  # torch's writer raises the other
                text = "rocsteady: step %d could not be saved: %s."
                log.warning(text, trainer.global_step, error)
        if not path.exists():
            return
        log.warning("rocsteady: saved step %d.", trainer.global_step)
        if self._last is not None and self._last != path:
            self._last.unlink(missing_ok=True)
        self._last = path


def _total(trainer: Any) -> int:  # noqa: ANN401
    """Return how many optimizer steps there will be; 0: that is not known."""
    try:
        total = trainer.estimated_stepping_batches
    except Exception:  # noqa: BLE001 - Lightning cannot tell if accumulation changes; we need not
        return 0
    alone = len(trainer.optimizers) == 1  # each of several steps by itself
    return int(total) if alone and isfinite(total) and total > 0 else 0
