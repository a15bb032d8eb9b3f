"""Which option comes first."""

from __future__ import annotations

import pytest
from builders import option, pace, plan
from msgspec.structs import replace

from rocsteady.model import Risk, Strategy
from rocsteady.plan.ranking import TIME_FOR_TRIALS, in_time, ranked, take, too_dear
from rocsteady.plan.values import Basis, Option

CASES: dict[str, tuple[list[Option], str]] = {
    "in time before late, though it takes longer to set up": (
        [
            option(90, chance=0.1, name="cpu"),
            option(9, chance=0.95, basis=Basis.ESTIMATE, name="wsl2"),
        ],
        "wsl2",
    ),
    "tried before estimated": (
        [
            option(8, chance=0.99, basis=Basis.ESTIMATE, name="cloud"),
            option(9, chance=0.99, name="gpu"),
        ],
        "gpu",
    ),
    "the same model before another one": (
        [option(2, chance=0.99, changes="0.7 M", name="small"), option(9, chance=0.99, name="gpu")],
        "gpu",
    ),
    "another model if only that is in time": (
        [option(2, chance=0.99, changes="0.7 M", name="small"), option(9, chance=0.2, name="gpu")],
        "small",
    ),
    "no option in time: the best chance": (
        [option(9, chance=0.2, name="gpu"), option(8, chance=0.4, name="other")],
        "other",
    ),
    "free before paid, in time": (
        [option(2, chance=0.99, cost=(1.0, 2.0), name="cloud"), option(9, chance=0.99, name="gpu")],
        "gpu",
    ),
    "a risk counts as time": (
        [option(9, chance=0.99, risk=Risk.HIGH, name="high"), option(11, chance=0.99, name="low")],
        "low",
    ),
    "about as soon: fewer GPUs": (
        [option(9.0, chance=0.99, name="two"), option(9.1, chance=0.99, name="one",
                                                strategy=Strategy(gpus=(0,)))],
        "one",
    ),
    "no deadline: the sooner": ([option(9, name="gpu"), option(90, name="cpu")], "gpu"),
    "no deadline: never rented": (
        [option(9, name="cpu"), option(1, name="cloud", cost=(1, 2), basis=Basis.ESTIMATE)],
        "cpu",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_first(name: str) -> None:
    options, first = CASES[name]

    assert ranked(options, budget=None)[0].id == first
    assert ranked(options[::-1], budget=None)[0].id == first


def test_what_is_likely_to_cost_more_than_there_is_comes_last() -> None:
    dear, late = (
        option(2, chance=0.99, cost=(3.0, 9.0), name="dear"),
        option(3, chance=0.95, name="late"),
    )

    assert [each.id for each in ranked([dear, late], budget=5.0)] == ["late", "dear"]
    assert too_dear(dear, 5.0)
    assert not too_dear(dear, 6.0)  # that it may is not enough


def test_a_chance_comes_before_none_whatever_the_upper_end_of_its_cost() -> None:
    """$0.10 to $12 against a budget of $10: a person takes the 59 %."""
    rented = option(9, chance=0.59, cost=(0.1, 12.0), basis=Basis.ESTIMATE, name="cloud")
    late = option(90, chance=0.0, name="cpu")

    assert [each.id for each in ranked([late, rented], budget=10.0)] == ["cloud", "cpu"]


def test_a_chance_that_is_about_as_good_and_free_comes_first() -> None:
    rented = option(9, chance=0.58, cost=(0.1, 2.0), basis=Basis.ESTIMATE, name="cloud")
    free = option(10, chance=0.56, name="gpu")

    assert [each.id for each in ranked([rented, free], budget=10.0)] == ["gpu", "cloud"]


def test_without_an_end_it_is_last_and_not_in_time() -> None:
    unknown = Option(id="jax", title="JAX", basis=Basis.ESTIMATE)

    assert ranked([unknown, option(900, name="cpu")], budget=None)[0].id == "cpu"
    assert ranked([unknown, option(900, chance=0.0, name="cpu")], budget=None)[0].id == "cpu"
    assert not in_time(unknown)


def test_where_no_end_is_known_the_pace_decides() -> None:
    slow, fast = (
        Option(id=name, title=name, basis=Basis.TRIAL, pace=pace(rate))
        for name, rate in (("slow", 1.0), ("fast", 3.0))
    )

    assert ranked([slow, fast], budget=None)[0].id == "fast"


def test_an_option_with_failures_is_never_said_to_work() -> None:
    failed = replace(
        option(2, chance=0.95), failures=1, failed_steps=105, kinds=("hang-in-loader",)
    )

    said = take(plan(failed))

    assert "It had 1 failure in 105 steps (hang-in-loader) here; rocsteady restarts it" in said
    assert "works" not in said


def test_an_option_without_failures_says_so() -> None:
    assert "It ran here without a failure." in take(plan(option(2, chance=0.95)))


def test_what_was_not_tried_is_not_ruled_out_and_is_named_beside_what_costs_money() -> None:
    rented = option(2, chance=0.95, cost=(1.0, 2.0), basis=Basis.ESTIMATE, name="cloud")
    cpu = Option(id="cpu", title="CPU", basis=Basis.NOT_TRIED, rests_on=("no time was left",))

    said = take(plan(rented, not_tried=(cpu,), budget=5.0))

    assert f"CPU was not tried; {TIME_FOR_TRIALS}." in said
    assert "CPU was not measured" in take(
        plan(rented, not_tried=(replace(cpu, cut_short=True),), budget=5.0)
    )
    assert "ruled out" not in said
    assert "works" not in said


def test_the_trade_off_is_said_where_the_cost_may_pass_the_budget() -> None:
    rented = option(9, chance=0.59, cost=(0.1, 12.0), basis=Basis.ESTIMATE, name="cloud")

    said = take(plan(rented, option(90, chance=0.0, name="cpu"), budget=10.0))

    assert said.startswith(
        "Recommended: option 1. What was tried here is not on time. No option is certain to be"
    )
    assert "this has the best chance (59 %)" in said
    assert "It costs about $1, at most $12; the budget is $10." in said


def test_what_is_given_up_for_the_budget_is_said() -> None:
    dear = option(9, chance=0.99, cost=(20.0, 30.0), basis=Basis.ESTIMATE, name="cloud")

    said = take(plan(option(20, chance=0.3, name="gpu"), dear, budget=10.0))

    assert (
        "Option 2 has a 99 % chance of being on time, but is likely to cost $24, over the budget."
        in said
    )


def test_the_next_option_is_compared_by_how_long_it_takes() -> None:
    assert "Option 2 takes 2.1 times as long." in take(plan(option(10), option(21, name="cpu")))
    assert "about the same time" in take(plan(option(10), option(10.5, name="cpu")))


def test_what_takes_hours_to_set_up_for_seconds_of_work_is_not_compared_by_a_factor() -> None:
    short = option(11 / 3600, chance=0.99, name="cpu")
    wsl = option(2_711 / 3600, chance=0.75, basis=Basis.ESTIMATE, name="wsl2")

    said = take(plan(short, wsl))

    assert "times as long" not in said
    assert "45 min" in said


def test_a_deadline_that_only_money_keeps_is_not_said_to_be_kept_by_none() -> None:
    dear = option(12, chance=0.95, cost=(20.0, 30.0), basis=Basis.ESTIMATE, name="cloud")

    said = take(plan(option(300, chance=0.03, name="cpu"), dear, budget=1.0))

    assert "No option finishes on time" not in said
    assert "Option 1 is unlikely to finish on time. Option 2 has a 95 % chance" in said


def test_where_none_is_on_time_the_soonest_is_said_once() -> None:
    rented = option(24, chance=0.0, cost=(0.5, 60.0), basis=Basis.ESTIMATE, name="cloud")

    said = take(plan(option(300, chance=0.0, name="cpu"), rented, budget=50.0))

    assert "the soonest is option 2, in 24 h, which costs money." in said
    assert "may be faster" not in said
