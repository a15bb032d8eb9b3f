"""Chains of options: what comes of them, exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
from builders import HOUR, option, pace
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocsteady.model import Risk, Strategy
from rocsteady.plan.chains import (
    ChainEnd,
    Goals,
    LinkForecast,
    Scenario,
    chain_of,
    ends,
    leader,
)
from rocsteady.plan.pace import NEVER_ENDS
from rocsteady.plan.values import Basis, Finish, Option, Price

CPU = Strategy(device="cpu")
PRICE = Price(dollars=1.0, as_of="2026-11-01", source="https://example.org")
RATES = st.floats(0.01, 100.0)


@st.composite
def tried(draw: st.DrawFn, *, last: bool = False) -> LinkForecast:
    rates = draw(st.lists(RATES, min_size=1, max_size=3))
    works = draw(st.floats(0.0, 1.0))
    scenarios = [Scenario(works / len(rates), rate) for rate in rates] + [Scenario(1 - works, 0.0)]
    if last:
        return LinkForecast(tuple(Scenario(1 / len(rates), rate) for rate in rates), math.inf)
    return LinkForecast(tuple(scenarios), draw(st.floats(1.0, 1000.0)), draw(RATES))


def brute_force(links: list[LinkForecast], left: float, *, resumes: bool) -> list[ChainEnd]:
    """Go through every combination of scenarios, one after the other."""
    found = []
    for taken in itertools.product(*(link.scenarios for link in links)):
        now, rest, chance = 0.0, left, math.prod(scenario.chance for scenario in taken)
        for number, (link, scenario) in enumerate(zip(links, taken, strict=True)):
            alone = rest / scenario.rate if scenario.rate else NEVER_ENDS
            kept = number == len(links) - 1 or alone <= link.within or scenario.rate >= link.least
            if kept and scenario.rate:
                now += alone
                break
            if number == len(links) - 1:
                now = NEVER_ENDS
                break
            now += link.within
            rest -= scenario.rate * link.within if resumes else 0.0
        found.append(ChainEnd(chance, min(now, NEVER_ENDS)))
    return found


def by_end(found: list[ChainEnd]) -> dict[float, float]:
    totals: dict[float, float] = {}
    for end in found:
        if end.chance > 1e-300:  # less than that is lost by multiplying
            key = float(f"{end.seconds:.6g}")
            totals[key] = totals.get(key, 0.0) + end.chance
    return totals


@given(
    first=st.lists(tried(), max_size=2),
    last=tried(last=True),
    left=st.floats(1.0, 10_000.0),
    resumes=st.booleans(),
)
def test_every_end_is_that_of_brute_force(
    first: list[LinkForecast], last: LinkForecast, left: float, *, resumes: bool
) -> None:
    links = [*first, last]
    exact = by_end(list(ends(links, left, resumes=resumes)))
    brute = by_end(brute_force(links, left, resumes=resumes))

    assert sum(exact.values()) == pytest.approx(1.0)
    assert exact.keys() == brute.keys()
    assert [exact[key] for key in exact] == pytest.approx([brute[key] for key in exact])


def mean(found: Iterator[ChainEnd]) -> float:
    return sum(end.chance * end.seconds for end in found)


@given(first=tried(), last=tried(last=True), left=st.floats(100.0, 1e6), resumes=st.booleans())
def test_a_chain_is_no_worse_than_its_fallback_by_more_than_the_time_limit(
    first: LinkForecast, last: LinkForecast, left: float, *, resumes: bool
) -> None:
    alone = mean(ends([last], left, resumes=resumes))
    ruled = first._replace(least=left / alone)  # as a plan sets it

    assert mean(ends([ruled, last], left, resumes=resumes)) <= alone + ruled.within + 1e-6


def runs(hours: float, number: int, *, risk: Risk = Risk.LOW, strategy: Strategy = CPU) -> Option:
    made = option(hours, chance=0.9, risk=risk, strategy=strategy, name=f"option-{number}")
    finish = Finish(seconds=hours * HOUR, early=hours * HOUR / 1.2, late=hours * HOUR * 1.2)
    return replace(made, number=number, pace=pace(1.0), finish=finish)


def test_a_fast_option_that_may_not_work_is_tried_before_one_that_does() -> None:
    gpu, cpu = runs(5, 1, risk=Risk.MEDIUM, strategy=Strategy()), runs(20, 2)
    made = chain_of([gpu, cpu], gpu, Goals(72_000, 24 * HOUR, None, resumes=True))

    assert made is not None
    assert [link.option for link in made.links] == [1, 2]
    rule = made.links[0].stop
    assert rule is not None
    assert rule.within <= HOUR
    assert rule.failures >= 2
    assert made.finish.in_time is not None
    assert made.finish.in_time > 0.9  # the GPU alone has 75 %
    assert made.links[-1].stop is None


def test_what_is_rented_without_a_budget_or_is_another_job_is_no_link() -> None:
    gpu = runs(5, 1, strategy=Strategy())
    others = [
        replace(runs(20, 2), basis=Basis.ESTIMATE, changes="script: another framework"),
        replace(runs(20, 2), basis=Basis.ESTIMATE, price=PRICE),  # and no budget
        replace(runs(20, 3), variant="small", command=("python", "small.py")),
    ]

    assert chain_of([gpu, *others], gpu, Goals(72_000, None, None, resumes=True)) is None


def test_the_rule_about_speed_is_what_the_next_option_makes() -> None:
    """Also where that may never end: a mean over 100 years is no speed."""
    gpu, cpu = runs(5, 1, strategy=Strategy()), runs(20, 2)
    made = chain_of([gpu, cpu], gpu, Goals(72_000, 48 * HOUR, None, resumes=True))

    assert made is not None
    rule = made.links[0].stop
    assert rule is not None
    assert rule.least is not None
    assert 0.8 < rule.least < 1.2  # 72,000 steps in 20 hours are 1 a second


def test_a_fix_is_tried_before_a_card_is_rented_as_long_as_there_is_time_to_rent() -> None:
    fix = replace(
        option(10, chance=0.7, basis=Basis.ESTIMATE, risk=Risk.MEDIUM, name="gpu+fix"),
        number=2, pace=pace(2.0), setup=(15, 60),
        finish=Finish(seconds=10 * HOUR, early=9 * HOUR, late=11 * HOUR, in_time=0.75),
    )  # fmt: skip
    cloud = replace(
        option(8, chance=0.95, basis=Basis.ESTIMATE, cost=(1.0, 2.0), name="cloud"),
        number=1, pace=pace(2.5), price=PRICE, setup=(120, 180),
        finish=Finish(seconds=8 * HOUR, early=7 * HOUR, late=9 * HOUR, in_time=0.95),
    )  # fmt: skip
    enough, short = (Goals(72_000, hours * HOUR, 10.0, resumes=True) for hours in (24, 9.5))

    assert leader([cloud, fix], enough) is fix
    late = [
        replace(it, finish=replace(it.finish, in_time=chance))
        for it, chance in ((cloud, 0.9), (fix, 0.2))
        if it.finish
    ]
    assert leader(late, short).id == "cloud"
    made = chain_of([cloud, fix], fix, enough)
    assert made is not None
    assert [link.by_hand for link in made.links] == [True, True]
    assert made.links[1].begin_by == 15 * HOUR
    assert made.finish.in_time is not None
    assert made.finish.in_time > 0.95


def test_what_is_on_time_here_is_not_left_for_what_a_person_must_set_up() -> None:
    cpu = replace(
        runs(20, 1), finish=Finish(seconds=20 * HOUR, early=18 * HOUR, late=22 * HOUR, in_time=0.99)
    )
    fix = replace(
        option(5, chance=0.72, basis=Basis.ESTIMATE, risk=Risk.MEDIUM, name="gpu+fix"),
        number=2, pace=pace(4.0), setup=(15, 60),
    )  # fmt: skip
    goals = Goals(72_000, 48 * HOUR, None, resumes=True)
    made = chain_of([cpu, fix], cpu, goals)

    assert leader([cpu, fix], goals) is cpu
    assert made is None or ((made.links[0].stop and made.links[0].stop.least) or 0.0) < 0.5


def test_an_offer_that_costs_too_much_does_not_lead() -> None:
    dear = replace(
        option(8, chance=0.95, basis=Basis.ESTIMATE, cost=(20.0, 30.0), name="cloud"),
        number=1, pace=pace(2.5), price=PRICE,
    )  # fmt: skip
    cpu = replace(runs(20, 2), finish=Finish(seconds=1.0, early=1.0, late=1.0, in_time=0.7))

    assert leader([dear, cpu], Goals(72_000, 24 * HOUR, 6.0, resumes=True)) is cpu
