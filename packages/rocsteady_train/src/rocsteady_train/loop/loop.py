"""A training loop that goes on where it stopped.

::

    loop = rocsteady_train.Loop(model=model, optimizer=optimizer, loader=loader, epochs=10)
    for batch in loop:
        loss = loop.step(batch, lambda part: criterion(model(part[0]), part[1]), reduction="mean")

What is restored: model, optimizer, scheduler, scaler, the generators of Python, NumPy, torch and
the device, the place in the data to the batch, and ``loop.values``, a dict of your own.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from rocsteady_train.checkpoints.checkpointer import Agreement, Checkpointer, log
from rocsteady_train.checkpoints.folder import CheckpointError
from rocsteady_train.goodput import best_interval, between_failures
from rocsteady_train.inside.wire import BETWEEN_FAILURES, MICRO_BATCH, SAVE_AFTER
from rocsteady_train.loop import supervisor_link
from rocsteady_train.loop.batch_order import BatchOrder
from rocsteady_train.loop.micro_batches import Compute, Count, MicroBatches, Reduction
from rocsteady_train.loop.roll_back import LossGuard, RollBack

PRIOR_INTERVAL = 4 * 3600.0  # seconds between failures, as long as nothing is known
# Seconds, and as many as it has trained: a training may well fail within that.
YOUNG_SECONDS = 600.0
FIRST_SAVE_AFTER = 2.0  # seconds until the first save, which shows what one costs
SECOND = 20.0  # seconds at most until the next, which shows whether the first was typical
RECENT_SAVES = 5  # saves: one that was slow by chance must not put off the next ones
SHORTEST_INTERVAL = 2.0  # seconds between two saves
STALLED = 0.01  # of the time: saves never make the training wait longer
REST = 2.0  # times the time that writing takes: the disk is also there for others


class Interval:
    def __init__(self, lose_at_most: float) -> None:
        self._lose_at_most = lose_at_most
        self._prior = supervisor_link.number(BETWEEN_FAILURES) or PRIOR_INTERVAL
        self._failures = 0
        self._before = 0.0  # seconds of training in earlier processes
        self._began = self._saved = time.monotonic()
        self._stalls: list[float] = []  # of recent saves, as are the times of writing
        self._writings: list[float] = []

    @property
    def seconds(self) -> float:
        if not self._stalls:
            return min(FIRST_SAVE_AFTER, self._lose_at_most)
        stall, rest = _typical(self._stalls), REST * _typical(self._writings)
        trained = self._before + time.monotonic() - self._began
        prior = min(self._prior, YOUNG_SECONDS + trained)
        between = between_failures(trained, self._failures, prior=prior)
        wanted = max(best_interval(stall, between), SHORTEST_INTERVAL, stall / STALLED)
        if len(self._stalls) == 1:
            wanted = min(wanted, SECOND)
        return min(max(wanted, rest), self._lose_at_most)

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self.seconds

    def saved(self, stall: float, writing: float) -> None:
        """Take a save into account, and what the one before it took to write."""
        self._saved = time.monotonic()
        self._stalls = [*self._stalls, max(stall, 1e-6)][-RECENT_SAVES:]
        self._writings = [*self._writings, writing][-RECENT_SAVES:]

    def state(self) -> dict[str, Any]:
        trained = self._before + time.monotonic() - self._began
        return {
            "failures": self._failures,
            "trained": trained,
            "stall": _typical(self._stalls),
            "writing": _typical(self._writings),
        }

    def interrupted(self, state: dict[str, Any]) -> None:
        """Take up what an earlier process knew; that it ended before the work did is a failure."""
        self._failures = state["failures"] + 1
        self._before = state["trained"]
        if state["stall"]:
            self._stalls, self._writings = [state["stall"]], [state["writing"]]


def _typical(seconds: list[float]) -> float:
    """Return the middle one, the smaller of two."""
    return sorted(seconds)[(len(seconds) - 1) // 2] if seconds else 0.0


class Early:
    """Saves that the supervisor wants early, since others from this checkpoint did not get so far.

    Each comes after twice as many steps as the one before it, so that they soon cost nothing.
    """

    def __init__(self, step: int) -> None:
        self._after = int(supervisor_link.number(SAVE_AFTER) or 0)
        self._next = step + self._after

    def due(self, step: int) -> bool:
        return self._after > 0 and step >= self._next

    def saved(self, step: int) -> None:
        if self.due(step):
            self._next += self._after
            self._after *= 2


PER_RANK = ("progress",)  # the place in the data and the generators are each rank's own
SAVE_PATIENCE = 64  # batches for which a save waits until the optimizer has used the gradients


class Loop:
    """Iterates over the batches of all epochs that are left."""

    def __init__(  # noqa: PLR0913 - what a training is made of, each by its name
        self,
        *,
        model: Any,  # noqa: ANN401 - torch's own
        optimizer: Any,  # noqa: ANN401
        loader: Any,  # noqa: ANN401
        epochs: int,
        scheduler: Any = None,  # noqa: ANN401
        scaler: Any = None,  # noqa: ANN401
        state: Mapping[str, Any] | None = None,
        checkpoints: str | os.PathLike[str] | Checkpointer = "checkpoints",
        lose_at_most: float = 600.0,
        micro_batch: int | None = None,
        roll_back: RollBack | None = None,
    ) -> None:
        """Restore the newest checkpoint, if there is one.

        ``state`` names more objects to save. ``lose_at_most`` is in seconds of training.
        ``micro_batch`` is how many samples are trained at a time, for steps that declare their
        ``reduction``; None: all, until memory runs out. ``roll_back`` goes back to the last good
        checkpoint when a loss is not finite, and leaves that batch out.
        """
        self.epoch = 0  # that is under way
        self.steps = 0  # batches that were trained, in all epochs
        self.values: dict[str, Any] = {}  # the user's own
        self._epochs = epochs
        self._optimizer, self._scheduler, self._scaler = optimizer, scheduler, scaler
        self.checkpointer = (
            checkpoints if isinstance(checkpoints, Checkpointer) else Checkpointer(checkpoints)
        )
        self._agreement = Agreement()
        self._parts = MicroBatches(model, micro_batch, alone=self._agreement.alone)
        self._seed = torch.initial_seed()
        self._order = BatchOrder(loader, self._seed)
        self._interval = Interval(lose_at_most)
        self._progress: dict[str, Any] = {}
        self._guard = roll_back and LossGuard(roll_back, model, self.checkpointer.folder)
        self._state = {
            "model": model,
            "optimizer": optimizer,
            **({} if scheduler is None else {"scheduler": scheduler}),
            **({} if scaler is None else {"scaler": scaler}),
            **(state or {}),
            "values": self.values,
            "progress": self._progress,
        }
        self._in_batch = False  # it is handed out, and does not count yet
        self._stepped = False  # by the optimizer, since the last batch
        self._postponed = 0
        self._repeated = 0  # steps, after going back
        self._asked = 0  # by the supervisor, for a save
        self._ending = False  # SIGTERM came
        self._saving = -1  # the step that was last handed to the checkpointer
        if self._restore():
            supervisor_link.began_at(self.steps)
        self._early = Early(self.steps)
        optimizer.register_step_post_hook(self._has_stepped)
        if (forced := supervisor_link.number(MICRO_BATCH)) is not None:
            self._parts.limit(int(forced))

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that are left, and save when it is time."""
        if self._order.warning:
            log.warning("rocsteady: %s.", self._order.warning)
        self._tell_total()
        if self._guard and self.checkpointer.newest is None:
            self.save(wait=True)  # there must be something to go back to
        before = self._listen()
        try:
            yield from self._batches()
        finally:
            self.checkpointer.wait()
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def step(
        self,
        batch: Any,  # noqa: ANN401 - a batch
        compute: Compute,
        *,
        reduction: Reduction | None = None,
        count: Count | None = None,
        clip_norm: float | None = None,
    ) -> Any:  # noqa: ANN401 - a tensor
        """Train on one batch, and return its loss.

        ``compute`` returns the loss of a batch, or of a part of it. ``reduction`` declares that it
        is the mean or the sum over samples, so that the batch may be split when memory runs out;
        ``count`` returns the number of terms of a part, if these are not its samples.
        """
        self._optimizer.zero_grad()
        loss = self._parts.backward(
            batch,
            compute,
            reduction=reduction,
            count=count,
            scale=self._scaler.scale if self._scaler is not None else lambda loss: loss,
            zero=self._optimizer.zero_grad,
        )
        if self._guard and self._is_bad(self._guard, batch, loss, compute):
            self._optimizer.zero_grad()
            return loss
        if clip_norm is not None:
            if self._scaler is not None:
                self._scaler.unscale_(self._optimizer)
            torch.nn.utils.clip_grad_norm_(self._state["model"].parameters(), clip_norm)
        if self._scaler is not None:
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._stepped = True  # it may have left a step out, which is also an end
        else:
            self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()
        return loss

    def save(self, *, wait: bool = False) -> None:
        """Save now. A batch that the optimizer has not used yet comes again after a resume."""
        if self._stepped:
            self._count_batch()
        self._note(self._order.state(ahead=self._in_batch))
        self._save(wait=wait)

    def _batches(self) -> Iterator[Any]:
        place = self._progress.get("order")
        while self.epoch < self._epochs:
            for batch in self._order.epoch(self.epoch, place):
                place = None
                if self._guard and self.steps + 1 in self._guard.left_out:
                    self.steps += 1
                    continue
                self._in_batch, self._stepped = True, False
                yield batch
                if self._guard and self._guard.why:
                    self._in_batch = False
                    break
                self._count_batch()
                self._after_batch()
            if self._guard and self._guard.why:
                self._go_back(self._guard)
                place = self._progress["order"]
                continue
            place = None
            self.epoch += 1
            if self.epoch == self._epochs:
                self._note(self._order.between_epochs())
                self._try_to_save(wait=True)

    def _count_batch(self) -> None:
        self.steps += self._in_batch
        self._in_batch = False

    def _after_batch(self) -> None:
        asked = supervisor_link.save_is_wanted()
        due = self._agreement.on(
            self._ending
            or asked != self._asked
            or self._interval.due()
            or self._early.due(self.steps)
        )
        saved = False
        now = due and (self._stepped or self._postponed >= SAVE_PATIENCE)
        if now:
            if not self._stepped:
                log.warning(
                    "rocsteady: gradients that are still being accumulated are not included in"
                    " the checkpoint."
                )
            self._asked, self._postponed = asked, 0
            self._note(self._order.state())
            saved = self._try_to_save(wait=self._ending)
        elif due:
            self._postponed += 1
        if self._ending and due and not self._postponed:
            self._end(saved=saved)

    def _is_bad(self, guard: LossGuard, batch: Any, loss: Any, compute: Compute) -> bool:  # noqa: ANN401
        """Return whether this step must not count, on any rank; what was seen is kept."""
        why = guard.judge(float(loss))
        if self._agreement.at_once(bool(why)):
            guard.why = why or "another rank has a loss that is not finite"
            alone = self._agreement.alone  # with others, a forward may wait for them
            guard.keep(self.steps + 1, batch, (lambda: compute(batch)) if alone else None)
        return bool(guard.why)

    def _go_back(self, guard: LossGuard) -> None:
        """Restore the last checkpoint that is good, and change what was asked for."""
        bad = self.steps + 1
        guard.count(bad)
        self.checkpointer.wait()
        while True:
            # Not the one that this process was told to begin with: it has saved newer ones since.
            newest = self.checkpointer.newest_path()
            if newest is None or not self._restore(newest):
                raise FloatingPointError(f"step {bad}: there is no good checkpoint to go back to")
            if guard.has_finite_weights():
                break
            self.checkpointer.set_newest_aside("has weights that are not finite")
        self._repeated += bad - 1 - self.steps
        self._tell_total()
        for group in self._optimizer.param_groups:
            group["lr"] *= guard.settings.learning_rate
        for number, rate in enumerate(getattr(self._scheduler, "base_lrs", ())):
            self._scheduler.base_lrs[number] = rate * guard.settings.learning_rate
        self._saving = -1
        log.warning(
            "rocsteady: back to step %d; the batch of step %d is left out.", self.steps, bad
        )

    def _note(self, order: dict[str, Any]) -> None:
        """Put together what the next process needs to go on from here."""
        self._progress.update(
            epoch=self.epoch,
            steps=self.steps,
            seed=self._seed,
            order=order,
            interval=self._interval.state(),
            left_out=sorted(self._guard.left_out) if self._guard else [],
        )

    def _save(self, *, wait: bool) -> None:
        if self._saving == self.steps:
            self.checkpointer.wait()
        if self.checkpointer.newest == self.steps:
            return
        self._saving = self.steps
        try:
            self.checkpointer.save(self.steps, self._state, wait=wait, per_rank=PER_RANK)
        finally:
            self._early.saved(self.steps)
            self._interval.saved(self.checkpointer.stall, self.checkpointer.writing)

    def _try_to_save(self, *, wait: bool) -> bool:
        """Save; a failure is a warning, and the next save is tried at the next interval."""
        try:
            self._save(wait=wait)
        except CheckpointError:
            return False
        return True

    def _restore(self, start: Path | None = None) -> bool:
        """Restore the newest checkpoint that is whole; False: there is none."""
        began = time.monotonic()
        step = self.checkpointer.restore(self._state, per_rank=PER_RANK, start=start)
        if step is None:
            return False
        progress = self._progress
        if step != progress.get("steps"):
            raise CheckpointError(
                f"the checkpoint of step {step} was not written by rocsteady_train.Loop"
            )
        try:
            _check_progress(progress)
            self.epoch, self.steps, self._seed = progress["epoch"], step, progress["seed"]
            self._order.reseed(self._seed)
            self._interval.interrupted(progress["interval"])
            if self._guard:
                self._guard.left_out.update(progress.get("left_out", ()))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint of step {step} has no progress of rocsteady_train.Loop: {error!r}"
            ) from None
        if start is None:  # otherwise one line tells it all
            log.warning(
                "rocsteady: resuming from step %d (epoch %d); restored in %.1f s.",
                step,
                self.epoch + 1,
                time.monotonic() - began,
            )
        return True

    def _tell_total(self) -> None:
        try:
            left_out = len(self._guard.left_out) if self._guard else 0
            supervisor_link.total(self._epochs * len(self._order) + self._repeated - left_out)
        except TypeError:  # data without a length
            return

    def _has_stepped(self, *_: object) -> None:
        self._stepped = True

    def _listen(self) -> Any:  # noqa: ANN401 - a signal handler
        """Save before ending when asked to end, unless the script has its own way to do so."""
        if threading.current_thread() is not threading.main_thread():
            return None
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return None
        return signal.signal(signal.SIGTERM, self._asked_to_end)

    def _asked_to_end(self, *_: object) -> None:
        self._ending = True

    def _end(self, *, saved: bool) -> None:
        """End as the signal would have ended us, now that the checkpoint is written."""
        state = "saved" if saved else "not saved"
        log.warning("rocsteady: SIGTERM: step %d is %s; ending.", self.steps, state)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _check_progress(progress: Mapping[str, Any]) -> None:
    """Raise for what would fail in the middle of the training otherwise."""
    order = progress["order"]
    numbers = {
        "epoch": progress["epoch"],
        "seed": progress["seed"],
        "consumed": order["consumed"],
    }
    for name, number in numbers.items():
        if type(number) is not int or (name != "seed" and number < 0):
            raise ValueError(f"{name} is {number!r}")
    if not all(isinstance(order[name], Mapping) for name in ("began", "now")):
        raise TypeError("the states of the generators are missing")
    for name, number in progress["interval"].items():
        if type(number) not in (int, float):
            raise TypeError(f"{name} is {number!r}")
