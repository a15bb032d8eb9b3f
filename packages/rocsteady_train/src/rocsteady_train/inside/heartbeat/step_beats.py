"""The beats of the training loop itself, which run thousands of times a second.

Between two beats the step has emptied the caches, so what counts is how much memory a beat touches.
Hence each is one function that calls nothing but the clock and has its numbers as literals: a call
of ``Heart.begin``, or a name of ``wire``, would cost as much again (measured: 5.5 and 4.0 us for
two beats in a step of 1.5 ms). What is rare hangs on one comparison, with ``heart.due``. A stay
is negative if another thread beat after this one read the clock; the page has no negative numbers.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from .. import wire
from .heart import AFTER_DATA, AFTER_TRAINING, IGNORED, Heart
from .training_facts import FIRST_STEPS

if (wire.W_STEP, wire.W_BEATS, wire.W_PHASE, wire.W_SINCE, wire.W_LAST_STEP) != (8, 9, 10, 11, 12):
    raise ImportError("the words of the page were given other numbers")
if wire.W_TIME != 16:  # noqa: PLR2004 - see above
    raise ImportError("the words of the page were given other numbers")
if (wire.DATA, wire.COMPUTE, wire.BACKWARD, wire.OPTIMIZER, IGNORED) != (1, 2, 3, 4, -1):
    raise ImportError("the phases were given other numbers")
if FIRST_STEPS != 8:  # noqa: PLR2004 - see above
    raise ImportError("the first steps were given another number")

StepHook = Callable[[object, object, object], None]


def step_hooks(  # noqa: C901 - two functions that call nothing: see above
    heart: Heart, look: Callable[[Any], None]
) -> tuple[StepHook, StepHook]:
    """Make the hooks that torch.optim calls before and after each step; look at the first few."""
    clock, back = monotonic_ns, AFTER_TRAINING
    after = -1  # also once a step has ended: an optimizer that called another is not counted

    def step_begins(_optimizer: object, _args: object, _kwargs: object) -> None:
        nonlocal after
        try:
            now = clock()
            if now > heart.due and heart.late(now, 4):
                after = -1
                return
            after = back[heart.phase]
            words = heart.words
            if (stay := now - words[11]) > 0:
                words[16 + heart.phase] += stay
            words[9] = heart.beats = heart.beats + 2
            words[10] = heart.phase = 4
            words[11] = now
        except Exception as error:
            heart.stop(error)

    def step_ends(optimizer: object, _args: object, _kwargs: object) -> None:
        nonlocal after
        try:
            now = clock()
            if after == -1 or (now > heart.due and heart.late(now, after)):
                return
            words = heart.words
            if (stay := now - words[11]) > 0:
                words[16 + heart.phase] += stay
            steps = heart.steps
            if after == 3:  # noqa: PLR2004 - in a backward, which is one step however many update
                heart.fused = True
            elif heart.fused:
                heart.fused = False  # that backward was counted; this only goes through the motions
            else:
                words[8] = steps = heart.steps = steps + 1
                words[12] = now
            words[10] = heart.phase = 2 if after == 4 else after  # noqa: PLR2004 - see above
            words[11] = now
            after = -1
            if steps <= 8:  # noqa: PLR2004 - see above
                look(optimizer)
        except Exception as error:
            heart.stop(error)

    return step_begins, step_ends


def around_next(heart: Heart, original: Any) -> Any:
    """Make the ``__next__`` of a loader's iterator beat. Other threads may load ahead."""
    clock, back, me = monotonic_ns, AFTER_DATA, get_ident

    def __next__(self: Any) -> Any:  # noqa: N807 - it becomes that method
        after = -1
        try:
            now = clock()
            if (me() == heart.thread or not heart.thread) and not (
                now > heart.due and heart.late(now, 1)
            ):
                after = back[heart.phase]
                words = heart.words
                if (stay := now - words[11]) > 0:
                    words[16 + heart.phase] += stay
                words[9] = heart.beats = heart.beats + 2
                words[10] = heart.phase = 1
                words[11] = now
        except Exception as error:
            heart.stop(error)
        try:
            return original(self)
        finally:
            try:
                now = clock()
                if after != -1 and not (now > heart.due and heart.late(now, after)):
                    words = heart.words
                    if (stay := now - words[11]) > 0:
                        words[16 + heart.phase] += stay
                    words[10] = heart.phase = after
                    words[11] = now
            except Exception as error:
                heart.stop(error)

    return __next__


def around_backward(heart: Heart, original: Any) -> Any:
    clock, back = monotonic_ns, AFTER_TRAINING

    def backward(*args: Any, **kwargs: Any) -> Any:
        after = -1
        try:
            now = clock()
            if not (now > heart.due and heart.late(now, 3)):
                after = back[heart.phase]
                words = heart.words
                if (stay := now - words[11]) > 0:
                    words[16 + heart.phase] += stay
                words[9] = heart.beats = heart.beats + 2
                words[10] = heart.phase = 3
                words[11] = now
                heart.fused = False
        except Exception as error:
            heart.stop(error)
        try:
            return original(*args, **kwargs)
        finally:
            try:
                now = clock()
                if after != -1 and not (now > heart.due and heart.late(now, after)):
                    words = heart.words
                    if (stay := now - words[11]) > 0:
                        words[16 + heart.phase] += stay
                    if heart.fused:  # the weights were updated in it
                        words[8] = heart.steps = heart.steps + 1
                        words[12] = now
                    words[10] = heart.phase = after
                    words[11] = now
            except Exception as error:
                heart.stop(error)

    return backward
