"""The recommendation says what a person would say: the trade-off, and nothing that was not seen."""

from __future__ import annotations

from builders import option, pace, plan
from msgspec.structs import replace

from rocsteady.plan.ranking import take
from rocsteady.plan.values import Basis, Option


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

    said = take(plan(rented, not_tried=(cpu,)))

    assert "CPU was not tried; use --within to allow more time for trials." in said
    assert "CPU was not measured" in take(plan(rented, not_tried=(replace(cpu, cut_short=True),)))
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


def test_a_comparison_uses_all_trials_of_an_option() -> None:
    """The unchanged script, once more, was 1.9 times as fast as at first."""
    tuned = replace(option(10, chance=0.95, name="cpu+x"), pace=pace(2.6), rates=(2.6,))
    plain = replace(option(21, chance=0.95, name="cpu"), pace=pace(1.24), rates=(1.0, 1.9))

    said = take(plan(tuned, plain))

    assert "Option 2 takes 1.4 to 2.6 times as long" in said
    assert "2.1" not in said


def test_trials_that_differ_more_than_two_options_do_prove_nothing() -> None:
    tuned = replace(option(10, chance=0.95, name="cpu+x"), pace=pace(1.3), rates=(1.3,))
    plain = replace(option(12, chance=0.95, name="cpu"), pace=pace(1.1), rates=(0.8, 1.5))

    assert "Option 2 takes 0.9 to 1.6 times as long, according to the trials." in take(
        plan(tuned, plain)
    )
