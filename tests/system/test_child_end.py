"""Each step to the end is tried in its turn; and which ends an interrupt asked for."""

from __future__ import annotations

import signal
import time
from datetime import timedelta

import pytest

from rocsteady.system.child_end import (
    Exit,
    Interrupt,
    Interrupts,
    StopOutcome,
    Stopping,
    StopResult,
    end_child,
)
from rocsteady.system.keeper import Family, ProcessSnapshot

NOBODY = 2**22 + 1  # above every pid that Linux gives
QUICK = timedelta(seconds=0.1)


class Stuck(Family):
    """A family with a process in it that no signal ends, as one stuck in the kernel."""

    def __init__(self) -> None:
        super().__init__(keeper=NOBODY, run_id="stuck")

    def members(self) -> dict[int, ProcessSnapshot]:
        return {NOBODY: ProcessSnapshot(state="D", parent=1, start=1)}


def test_what_cannot_be_killed_is_named_in_time() -> None:
    def wait(_seconds: float) -> Exit | None:
        return None

    stopping = Stopping(terminate_wait=QUICK, kill_wait=QUICK)
    began = time.monotonic()
    ended = end_child(Stuck(), wait, stopping, signal.SIGTERM)

    assert ended == StopResult(exit=None, unkillable=(NOBODY,), how=StopOutcome.UNKILLABLE)
    assert time.monotonic() - began < 2


def after(*interrupts: Interrupt) -> Interrupts:
    noted = Interrupts()
    for interrupt in interrupts:
        noted.add(interrupt)
    return noted


def at(seconds: float, *, prompt: bool = False, **taken: str) -> Interrupt:
    return Interrupt(
        at=seconds, prompt=prompt, taken={int(pid[1:]): how for pid, how in taken.items()}
    )


@pytest.mark.parametrize(
    ("interrupts", "asked"),
    [
        ((), False),
        ((at(0),), False),
        ((at(0), at(2)), True),
        ((at(0), at(2.1)), False),
        ((at(0), at(2.1), at(4)), True),
        ((at(0, prompt=True), at(1)), False),
        ((at(0), at(1, prompt=True)), False),
        ((at(0, p1="caught"), at(1, p1="caught")), True),
        ((at(0, p1="caught"), at(1, p1="ignored")), False),  # it reacted to the first: it saves
        ((at(0, p1="caught", p2=""), at(1, p1="caught")), True),  # a worker ended
    ],
)
def test_two_that_are_ignored_ask_for_the_end(
    interrupts: tuple[Interrupt, ...], *, asked: bool
) -> None:
    assert after(*interrupts).ask_for_the_end(10.0) is asked


def test_the_script_has_a_moment_to_act_on_the_second() -> None:
    twice = after(at(0), at(1))

    assert not twice.ask_for_the_end(1.5)
    assert twice.ask_for_the_end(2.5)
    twice.answered()
    assert not twice.ask_for_the_end(2.5)


def test_an_end_is_the_users_unless_interrupts_were_for_a_prompt() -> None:
    assert not after().stopped_it(1.0, by_interrupt=True)
    assert after(at(0)).stopped_it(3600.0, by_interrupt=False)
    assert not after(at(0, prompt=True)).stopped_it(3600.0, by_interrupt=False)
    assert after(at(0, prompt=True)).stopped_it(1.5, by_interrupt=False)
    assert after(at(0, prompt=True)).stopped_it(3600.0, by_interrupt=True)
