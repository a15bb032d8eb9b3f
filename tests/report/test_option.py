"""The words of one way. All figures in this file are invented."""

from __future__ import annotations

from datetime import timezone

import pytest

from rocsteady.plan import Basis, Finish, Pace, Plan, Price, Way
from rocsteady.report.option import cells, chance, clean, cost, pace, rests_on, setup

PLAN = Plan(rocsteady="0.1", made=0.0, command=(), folder="", software="", total=None, left=None)


def way(basis: Basis = Basis.TRIAL, **more: object) -> Way:
    return Way(id="a", title="a", basis=basis, **more)  # type: ignore[arg-type] # as the test says


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
    assert pace(way(pace=at(rate))) == measured
    assert pace(way(Basis.ESTIMATE, pace=at(rate))) == estimated


@pytest.mark.parametrize(
    ("dollars", "words"),
    [
        (None, "-"),
        ((0, 0), "-"),
        ((0.02, 0.02), "~$0.02"),
        ((0.001, 0.001), "~$0.01"),
        ((3, 6), "$3-6"),
        ((0.5, 3.5), "$0.50-3.50"),
        ((24.6, 25.3), "~$25"),
        ((1_100, 1_200), "$1,100-1,200"),
    ],
)
def test_a_cost(dollars: tuple[float, float] | None, words: str) -> None:
    assert cost(way(Basis.ESTIMATE, cost=dollars)) == words


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


@pytest.mark.parametrize(
    ("finish", "words"),
    [
        (Finish(seconds=9000, early=8000, late=10000), "+- 17 min"),
        (Finish(seconds=9000, early=8000, late=13000), "-17 min +67 min"),
        (Finish(seconds=9000, early=9000, late=13000), "+67 min"),
        (Finish(seconds=9000, early=8950, late=9050), ""),  # too small to matter
        (Finish(seconds=9000, early=9000, late=float("inf")), "or never"),
        (Finish(seconds=float("inf"), early=9000, late=float("inf")), ""),
    ],
)
def test_the_interval_where_it_matters(finish: Finish, words: str) -> None:
    assert cells(way(finish=finish), PLAN, now=0.0, zone=timezone.utc)["90 %"] == words


def test_a_small_interval_matters_if_the_deadline_lies_in_it() -> None:
    plan = Plan(
        rocsteady="0.1",
        made=0.0,
        command=(),
        folder="",
        software="",
        total=9,
        left=9,
        deadline=9040,
    )
    finish = Finish(seconds=9000, early=8950, late=9050, in_time=0.7)

    row = cells(way(finish=finish), plan, now=0.0, zone=timezone.utc)

    assert (row["90 %"], row["by then"]) == ("+- 50 s", "70 %")


def test_what_it_rests_on_begins_with_how_it_was_found_out() -> None:
    said = ("no hang.", "see 3 runs")
    assert rests_on(way(pace=at(0.5), rests_on=said), PLAN) == (
        "trial, 1 step in 2 s; no hang; see 3 runs"
    )
    assert rests_on(way(Basis.ESTIMATE), PLAN) == "estimate"
    assert rests_on(way(rests_on=("Trial of 40 s",)), PLAN) == "Trial of 40 s"


def test_it_says_what_failures_take_what_an_hour_costs_and_what_passes_the_budget() -> None:
    price = Price(dollars=1.99, as_of="soon", source="a leaflet", old=True)
    finish = Finish(seconds=9, early=8, late=10, failures=1.2, lost=0.25)
    plan = Plan(
        rocsteady="", made=0.0, command=(), folder="", software="", total=9, left=9, budget=4.5
    )

    over = way(Basis.ESTIMATE, finish=finish, price=price, cost=(5.0, 6.0))
    near = way(Basis.ESTIMATE, cost=(4.0, 6.0))

    assert rests_on(over, plan) == (
        "estimate; about 1 failure expected, 25 % of the time; $1.99 an hour, a leaflet, soon,"
        " old; is over the budget of $4.50"
    )
    assert rests_on(near, plan) == "estimate; may pass the budget of $4.50"


def test_text_of_others_moves_no_cursor() -> None:
    assert clean("a\n b\x1b[31m\tc") == "a b\\x1b[31m c"
