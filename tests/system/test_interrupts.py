"""Which interrupts ask for the end, and which are the script's alone."""

from __future__ import annotations

import pytest

from rocsteady.system.child_end import Interrupt, Interrupts


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
