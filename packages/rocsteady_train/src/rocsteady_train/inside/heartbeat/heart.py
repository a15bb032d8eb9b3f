"""The state of this process's heartbeat: which phase it is in, since when, and who may say so.

A beat writes a few words and compares the time with one number; all that is rare hangs on that
comparison: making the page, choosing the thread that trains, counting a sample of stays.
"""

from __future__ import annotations

import sys
import threading
from _thread import get_ident
from signal import SIGINT, default_int_handler, getsignal
from time import monotonic_ns
from typing import Any

from ..wire import (
    BACKWARD,
    BUCKETS,
    COMPUTE,
    EVALUATE,
    FINISH,
    HOOKS,
    NO,
    OPTIMIZER,
    PHASES,
    RUNNING,
    SAMPLED,
    SIZE,
    STARTING,
    W_BEATS,
    W_COUNT,
    W_END,
    W_HISTOGRAM,
    W_HOOKS,
    W_INTERRUPTED,
    W_LONGEST,
    W_PHASE,
    W_SINCE,
    W_THREAD,
    W_TIME,
    YES,
)
from . import page

IGNORED = -1  # instead of the phase to go back to: this was not the thread that trains
NOT_DUE = 1 << 63
QUIET = 1_000_000_000  # a thread that trains may be relieved by another after so long
CYCLE = 32  # beats in which a step should come round
NO_CYCLE = (-1, -1)

# What to go back to, by what was there before. Nested work goes back to where it was.
_SAME = tuple(range(len(PHASES)))
AFTER_ASIDE = _SAME
AFTER_DATA = tuple(COMPUTE if phase == STARTING else phase for phase in _SAME)
AFTER_TRAINING = tuple(COMPUTE if phase in (STARTING, EVALUATE) else phase for phase in _SAME)


class Heart:
    """What this process knows of its own progress. One a process; reset after a fork."""

    __slots__ = (
        "beats",
        "cycle",
        "cycle_beats",
        "due",
        "facts",
        "fused",
        "hooks",
        "opened",
        "phase",
        "steps",
        "thread",
        "trained",
        "words",
    )

    def __init__(self) -> None:
        self.hooks = 0
        self.reset()

    def reset(self) -> None:
        """Forget the page: there is none yet, or it is the parent's. The next beat makes one."""
        self.words = memoryview(bytearray(SIZE)).cast("Q")  # written to, read by nobody
        self.opened = False
        self.due = 0  # when the next beat goes through ``late``; NOT_DUE once it is of no use
        self.beats = self.steps = 0
        self.phase = STARTING
        self.fused = False  # an optimizer was stepped in the last backward
        self.thread = 0  # that trains; 0 is "not known"
        self.trained = False  # it is known for more than asking a loader for data
        self.cycle = NO_CYCLE  # the change of phase at whose return the sample is complete
        self.cycle_beats = 0
        self.facts: dict[int, int] = {}  # words that are no beats

    def open(self) -> None:
        self.words = page.make()
        self.opened = True
        self.words[W_HOOKS] = self.hooks
        for word, value in self.facts.items():
            self.words[word] = value

    def begin(self, phase: int, back: tuple[int, ...]) -> int:
        """Enter a phase, and give the one to go back to."""
        now = monotonic_ns()
        if now > self.due and self.late(now, phase):
            return IGNORED
        after = back[self.phase]
        words = self.words
        if (stay := now - words[W_SINCE]) > 0:
            words[W_TIME + self.phase] += stay
        words[W_BEATS] = self.beats = self.beats + 2
        words[W_PHASE] = self.phase = phase
        words[W_SINCE] = now
        return after

    def end(self, after: int) -> None:
        if after == IGNORED:
            return
        now = monotonic_ns()
        if now > self.due and self.late(now, after):
            return
        words = self.words
        if (stay := now - words[W_SINCE]) > 0:
            words[W_TIME + self.phase] += stay
        words[W_PHASE] = self.phase = after
        words[W_SINCE] = now

    def late(self, now: int, phase: int) -> bool:
        """Do what is rare: make the page, find out who trains, sample. True: do not count this."""
        if not self.opened:
            if page.is_loader_worker():
                self._be_useless()
                return True
            self.open()
        training = phase in (BACKWARD, OPTIMIZER)
        me = get_ident()
        known = me == self.thread and (self.trained or not training)
        if not known and not self._claim(me, now, training):
            return True
        self._sample(now, phase)
        return False

    def is_strange(self) -> bool:
        """Return whether another thread than this one trains: it may load data ahead, or save."""
        return get_ident() != self.thread != 0

    def finish(self, how: int) -> None:
        if self.opened and self.words[W_END] == RUNNING:
            self.words[W_END] = how
            self.due = 0
            self.thread = get_ident()
            self.begin(FINISH, AFTER_ASIDE)

    def trains_elsewhere(self) -> bool:
        """Return whether a thread may still train when the main one has ended."""
        main = threading.main_thread()
        if self.trained or self.steps:
            return self.thread != main.ident and _is_alive(self.thread)
        return any(thread is not main and not thread.daemon for thread in threading.enumerate())

    def hooked(self, name: str) -> None:
        """Record that this kind of beat can be expected."""
        self.hooks |= 1 << HOOKS.index(name)
        if self.opened:
            self.words[W_HOOKS] = self.hooks

    def tell(self, word: int, value: int) -> None:
        """Write a word that is no beat: now, or when there is a page."""
        self.facts[word] = value
        if self.opened:
            self.words[word] = value

    def stop(self, error: Exception) -> None:
        """Beat no more, after an error of ours: the script goes on, and there is no page."""
        if self.due == NOT_DUE:
            return  # it was said before
        page.note("heartbeat is off", error)
        if self.opened:
            page.remove()
        self._be_useless()

    def _be_useless(self) -> None:
        self.reset()
        self.due = NOT_DUE

    def _claim(self, me: int, now: int, training: bool) -> bool:  # noqa: FBT001 - not an option
        """Return whether this thread trains, or may speak for the one that does."""
        if self.thread not in (0, me):
            if self.phase == BACKWARD and self.trained:
                return True  # a thread of autograd, for which the one that trains waits
            quiet = now - self.words[W_SINCE] > QUIET or not _is_alive(self.thread)
            if not (training and (quiet or not self.trained)):
                return False
        self.thread = me
        self.trained = self.trained or training
        self.words[W_THREAD] = threading.get_native_id()
        page.identify(self.words)
        return True

    def _sample(self, now: int, phase: int) -> None:
        """Count the stays of one whole step, then rest.

        A step is over when the same change of phase comes round: most phases come several times.
        """
        stay = now - self.words[W_SINCE]
        change = (self.phase, phase)
        if self.cycle == NO_CYCLE:
            self.cycle, self.cycle_beats = change, 0
            if stay < SAMPLED:
                return  # only its end was seen; a long one is always counted
        self._count(self.phase, stay)
        self.cycle_beats += 1
        if stay < SAMPLED and change != self.cycle and self.cycle_beats < CYCLE:
            return
        self.due = now + SAMPLED
        self.cycle = NO_CYCLE
        self.words[W_INTERRUPTED] = YES if _handles_interrupts() else NO

    def _count(self, phase: int, stay: int) -> None:
        words = self.words
        words[W_COUNT + phase] += 1
        words[W_LONGEST + phase] = max(words[W_LONGEST + phase], stay)
        bucket = min(stay.bit_length(), BUCKETS - 1)
        words[W_HISTOGRAM + phase * BUCKETS + bucket] += 1


def _handles_interrupts() -> bool:
    """Return whether the script has a handler for ^C, that is neither Python's nor asyncio's."""
    handler = getsignal(SIGINT)
    module = getattr(getattr(handler, "func", handler), "__module__", "")
    return callable(handler) and handler is not default_int_handler and module != "asyncio.runners"


def _is_alive(thread: int) -> bool:
    frames: dict[int, Any] = sys._current_frames()  # noqa: SLF001 - knows threads of C++ too
    return thread in frames
