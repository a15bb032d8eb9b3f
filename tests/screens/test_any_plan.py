"""Whatever a plan says, its screen fits the terminal."""

from __future__ import annotations

import re
from datetime import UTC

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocsteady.plan.values import Basis, Finish, Limit, Option, Pace, Plan, Price, Risk
from rocsteady.screens.plan import render_plan

WORDS = st.text("ab-,.", max_size=70) | st.lists(st.text("abc.", max_size=12)).map(" ".join)
SECONDS = st.floats(0, 1e13) | st.just(float("inf"))
SPANS = st.tuples(st.floats(0, 5_000), st.floats(0, 100_000)) | st.none()
FINISHES = st.none() | st.builds(
    Finish,
    seconds=SECONDS,
    early=SECONDS,
    late=SECONDS,
    in_time=st.floats(0, 1) | st.none(),
    failures=st.floats(0, 1e6),
    lost=st.floats(0, 1),
)
OPTIONS = st.builds(
    Option,
    number=st.integers(1, 99),
    id=WORDS,
    title=WORDS.filter(str.strip),
    basis=st.sampled_from(Basis),
    pace=st.none()
    | st.builds(
        Pace,
        steps=st.integers(0),
        seconds=st.floats(0, 1e5),
        rate=st.floats(0, 1e6),
        low=st.just(0.0),
        high=st.just(1e6),
        starting=st.just(9.0),
    ),
    finish=FINISHES,
    setup=SPANS,
    cost=SPANS,
    price=st.none() | st.builds(Price, dollars=st.floats(0, 99), as_of=WORDS, source=WORDS),
    risk=st.sampled_from(Risk),
    rests_on=st.lists(WORDS, max_size=3).map(tuple),
    sources=st.lists(WORDS, max_size=2).map(tuple),
    changes=WORDS,
    do=st.sampled_from(("", "rocsteady run --plan 3")),
)
PLANS = st.builds(
    Plan,
    rocsteady=st.just("0.1"),
    made=st.floats(0, 4e9),
    command=st.lists(WORDS, max_size=3).map(tuple),
    folder=WORDS,
    software=WORDS,
    total=st.none() | st.integers(0),
    left=st.none() | st.integers(0, 10**12),
    deadline=st.none() | st.floats(0, 4e9),
    budget=st.none() | st.floats(0, 9_999),
    trials=st.integers(0, 99),
    trial_seconds=st.floats(0, 1e5),
    options=st.lists(OPTIONS, max_size=4).map(tuple),
    ruled_out=st.lists(OPTIONS, max_size=3).map(tuple),
    take=WORDS,
    limits=st.lists(
        st.builds(
            Limit, part=WORDS, share=st.floats(0, 1), where=WORDS, best=WORDS, gain=st.floats(1, 99)
        ),
        max_size=5,
    ).map(tuple),
    warnings=st.lists(WORDS, max_size=2).map(tuple),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PLANS, st.sampled_from((60, 80, 100, 120)))
def test_any_plan_fits_its_terminal_in_ascii_with_or_without_colour(plan: Plan, width: int) -> None:
    now = plan.made + 60
    page = render_plan(plan, now=now, width=width, colour=False, zone=UTC)
    coloured = render_plan(plan, now=now, width=width, colour=True, zone=UTC)

    assert page.isascii()
    assert "\x1b" not in page
    assert [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()] == (
        page.splitlines()
    )
    for line in page.splitlines():
        assert len(line) <= width or len(line.split()) == 1, "only a word that is longer may be"
    for each in plan.options:
        assert re.search(rf"^ {{2,3}}{each.number}  \S", page, re.MULTILINE)
    shown = plan.trials or plan.options == () or plan.options[0].basis is not Basis.ESTIMATE
    assert plan.options == () or not shown or plan.options[0].do in page
