"""Which option comes first."""

from __future__ import annotations

import pytest
from builders import option, pace

from rocsteady.model import Strategy
from rocsteady.plan.ranking import in_time, ranked, too_dear
from rocsteady.plan.values import Basis, Option, Risk

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
    "no deadline: rented only if it is much sooner": (
        [option(9, name="cpu"), option(6, name="cloud", cost=(1, 2), basis=Basis.ESTIMATE)],
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
