"""Observers of a run: a drill, a trial and a probe are an ordinary run that some of them follow."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocsteady.model import Failure
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.attempt.progress import StepTimes
from rocsteady.run.checkpoints.resume import Launch
from rocsteady.run.context import Services
from rocsteady.run.recovery.history import History
from rocsteady.store.values import Run, Sample

TICK = 0.1  # seconds


class ObservedRun:
    """What an observer sees of a run, and how it ends one."""

    def __init__(
        self, run: Run, step_times: StepTimes, history: History, services: Services
    ) -> None:
        self.run, self.step_times, self.history = run, step_times, history
        self.attempt = 0  # the number of the one under way
        self.steps_before = 0  # that this attempt does not have to make
        self.pages: Path | None = None  # of this attempt, once it has started
        self.is_over = False  # an observer has ended the run: there is nothing more to see
        self._announcer, self._stop_requests = services.announcer, services.stop_requests

    @property
    def folder(self) -> Path:
        """Where the log and the evidence of the run lie."""
        return Path(self.run.folder)

    @property
    def stopped_by_user(self) -> bool:
        """Return whether somebody stopped it before it was over."""
        return self._stop_requests.stop is not None and not self.is_over

    def say(self, text: str) -> None:
        self._announcer.say(text)

    def end(self, why: str = "") -> None:
        """End the run, since there is nothing more to see."""
        self.is_over = True
        if why:
            self.say(why)
        self._stop_requests.stop = signal.SIGTERM


class Observer:
    """Is called at each moment of a run. This one does nothing; others override what they need."""

    every = TICK  # seconds between two looks

    def launching(self, run: ObservedRun, launch: Launch) -> Launch:
        """Return what to start, before an attempt is started."""
        del run
        return launch

    def started(self, run: ObservedRun) -> None:
        """React to the start of an attempt."""

    def ticked(self, run: ObservedRun) -> None:
        """Look at the run, again and again, in a thread of its own."""

    def sampled(self, run: ObservedRun, sample: Sample) -> None:
        """Take in what was measured; the watching of the run waits for it."""

    def ended(self, run: ObservedRun, end: AttemptEnd) -> None:
        """React to the end of an attempt, whose pages are still there."""

    def failed(self, run: ObservedRun, failure: Failure) -> None:
        """Know why the attempt that has ended failed."""


@contextmanager
def ticking(observers: Sequence[Observer], run: ObservedRun) -> Iterator[None]:
    """Call observers again and again while a run goes."""
    ended = threading.Event()
    wait = min((observer.every for observer in observers), default=TICK)

    def tick() -> None:
        while not ended.wait(wait):
            for observer in observers:
                observer.ticked(run)

    thread = threading.Thread(target=tick, daemon=True)
    if observers:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if observers:
            thread.join()
