"""The words of one option. All figures in this file are invented."""

from __future__ import annotations

from datetime import UTC

import pytest

from rocsteady.plan.values import Basis, Finish, Option, Pace, Plan, Price
from rocsteady.screens.plan import based_on, chance, clean, cost, pace, render_option, setup

PLAN = Plan(rocsteady="0.1", made=0.0, command=(), folder="", software="", total=None, left=None)


def option(basis: Basis = Basis.TRIAL, **more: object) -> Option:
    return Option(id="a", title="a", basis=basis, **more)  # type: ignore[arg-type] # as the test says


def at(rate: float) -> Pace:
    return Pace(steps=1, seconds=1 / rate if rate else 9, rate=rate, low=0, high=9, starting=1)


@pytest.mark.parametrize(
    ("rate", "measured", "estimated"),
    [
        (12_000.4, "12,000", "~12,000"),
        (1_234.0, "1,234", "~1,200"),
        (99.96, "100", "~100"),
        (23.84, "23.8", "~24"),
        (9.996, "10.0", "~10"),
        (9.04, "9.04", "~9"),
        (0.1, "0.10", "~0.1"),
        (0.19, "0.19", "~0.19"),
        (0.0212, "0.021", "~0.021"),
        (0.0003, "0.0003", "~0.0003"),
        (0.00003, "<0.0001", "<0.0001"),
        (0.0, "-", "-"),
    ],
)
def test_a_pace_has_two_or_three_digits_and_an_estimate_a_mark(
    rate: float, measured: str, estimated: str
) -> None:
    assert pace(option(pace=at(rate))) == measured
    assert pace(option(Basis.ESTIMATE, pace=at(rate))) == estimated


@pytest.mark.parametrize(
    ("dollars", "words"),
    [
        (None, "-"),
        ((0, 0), "-"),
        ((0.02, 0.02), "~$0.02"),
        ((0.001, 0.001), "<$0.01"),
        ((0.00096, 0.3), "$0-0.30"),
        ((3, 6), "$3-6"),
        ((0.5, 3.5), "$0.50-3.50"),
        ((24.6, 25.3), "~$25"),
        ((1_100, 1_200), "$1,100-1,200"),
    ],
)
def test_a_cost(dollars: tuple[float, float] | None, words: str) -> None:
    assert cost(option(Basis.ESTIMATE, cost=dollars)) == words


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        (None, "-"),
        ((0, 0), "-"),
        ((5, 5), "5 min"),
        ((30, 60), "30-60 min"),
        ((60, 120), "1-2 h"),
        ((30, 2_000), "0.5-33 h"),
        ((1_440, 4_320), "1-3 d"),
    ],
)
def test_the_work_by_hand(minutes: tuple[float, float] | None, words: str) -> None:
    assert setup(minutes) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(1.0, ">99 %"), (0.994, "99 %"), (0.5, "50 %"), (0.01, "1 %"), (0.0, "<1 %")],
)
def test_a_chance_is_never_certain(share: float, words: str) -> None:
    assert chance(share) == words


def test_what_it_is_based_on_is_said_in_a_few_words() -> None:
    assert based_on(option(pace=at(0.5)), PLAN) == "trial: 0 failures in 1 step"
    assert based_on(option(failed_steps=904), PLAN) == "trial: 0 failures in 904 steps"
    assert based_on(option(failures=3, failed_steps=22_616), PLAN) == "3 failures in 22,616 steps"
    assert based_on(option(variant="small", changes="0.7 M"), PLAN) == "trial; changes the model"
    assert based_on(option(changes="bf16"), PLAN) == "trial; changes the numbers"
    assert based_on(option(Basis.ESTIMATE, changes="x"), PLAN) == (
        "estimate; needs changes to the script"
    )
    assert based_on(option(Basis.ESTIMATE), PLAN) == "estimate"


def test_it_says_which_failures_are_expected_and_what_exceeds_the_budget() -> None:
    price = Price(dollars=1.99, as_of="soon", source="a leaflet", old=True)
    finish = Finish(seconds=9, early=8, late=10, failures=1.2, lost=0.25)
    plan = Plan(
        rocsteady="", made=0.0, command=(), folder="", software="", total=9, left=9, budget=4.5
    )

    over = option(Basis.ESTIMATE, finish=finish, price=price, cost=(5.0, 6.0))
    near = option(Basis.ESTIMATE, cost=(4.0, 6.0))

    assert based_on(over, plan) == (
        "estimate; ~1 expected; prices as of soon; over the budget of $4.50"
    )
    assert based_on(near, plan) == "estimate; may exceed the budget of $4.50"


def test_everything_about_an_option_is_behind_explain() -> None:
    price = Price(dollars=1.99, as_of="2025-08-22", source="https://prices.example/x", old=True)
    finish = Finish(seconds=9000, early=8000, late=13000, in_time=0.7, failures=4.2, lost=0.25)
    plan = Plan(
        rocsteady="",
        made=0.0,
        command=(),
        folder="",
        software="",
        total=9,
        left=9,
        deadline=9500,
        budget=4.5,
    )
    row = option(
        Basis.ESTIMATE,
        number=2,
        pace=at(0.5),
        finish=finish,
        setup=(30, 60),
        cost=(4.0, 6.0),
        price=price,
        rests_on=("scaled by 2 to 3.", "AMD lists it"),
        sources=("amd-list", "amd-list"),
        changes="script: another device",
        do="rocsteady plan --export skypilot --option 2",
    )

    assert render_option(row, plan, now=0.0, width=80, colour=False, zone=UTC) == (
        "Option 2: a\n"
        "  pace        ~0.5 steps/s (0 to 9, 90 %)\n"
        "  finishes    Thu 1 Jan 02:30; between Thu 1 Jan 02:13 and Thu 1 Jan 03:36 (90\n"
        "              %)\n"
        "  on time     70 %\n"
        "  failures    about 4 expected, 25 % of the time\n"
        "  cost        $4-6; $1.99 per hour at prices.example as of 22 Aug 2025 (old);\n"
        "              may exceed the budget of $4.50\n"
        "  set-up      30-60 min of manual work\n"
        "  risk        low\n"
        "  changes     script: another device\n"
        "  based on    Scaled by 2 to 3.\n"
        "              AMD lists it.\n"
        "  sources     amd-list\n"
        "  to run it   rocsteady plan --export skypilot --option 2\n"
    )


def test_text_of_others_moves_no_cursor() -> None:
    assert clean("a\n b\x1b[31m\tc") == "a b\\x1b[31m c"
