"""A condition holds, does not hold, or cannot be told; and a yes says what it rests on."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.doctor.condition_match import CannotTell, Match, Matcher, Seen
from rocsteady.doctor.facts import Facts, Scalar
from rocsteady.doctor.knowledge.hardware import Arch
from rocsteady.doctor.knowledge.rules import Condition

Truth: TypeAlias = bool | None

YES = Condition(fact="yes", present=True)
NO = Condition(fact="no", present=True)
OPEN = Condition(fact="open", present=True)
LEAF = {True: YES, False: NO, None: OPEN}

ARCHES = {
    "gfx1030": Arch(gfx="gfx1030", family="gfx10_3", name="Navi 21"),
    "gfx1031": Arch(gfx="gfx1031", family="gfx10_3", name="Navi 22"),
    "gfx1100": Arch(gfx="gfx1100", family="gfx11_0", name="Navi 31"),
}


def matcher(**values: tuple[Scalar, ...]) -> Matcher:
    """Know these facts, ``yes`` and ``no``, and that ``open`` cannot be told."""
    facts = Facts()
    facts.know("yes", ["here"])
    facts.know("no", [])
    facts.cannot_tell("open", "nobody says")
    for name, known in values.items():
        facts.know(name, known)
    return Matcher(facts, {"sees": sees, "fine": fine, "blind": blind}, ARCHES)


def sees() -> Seen:
    return ("one thing", "another")


def fine() -> Seen:
    return ()


def blind() -> Seen:
    raise CannotTell("torch.arches")


@pytest.mark.parametrize(
    ("parts", "of_all", "of_any", "of_none"),
    [
        ([True], True, True, False),
        ([False], False, False, True),
        ([None], None, None, None),
        ([True, True], True, True, False),
        ([True, False], False, True, False),
        ([False, True], False, True, False),
        ([False, False], False, False, True),
        ([True, None], None, True, False),
        ([None, True], None, True, False),
        ([False, None], False, None, None),
        ([None, False], False, None, None),
        ([None, None], None, None, None),
    ],
)
def test_three_valued_logic(
    parts: list[Truth], of_all: Truth, of_any: Truth, of_none: Truth
) -> None:
    leaves = tuple(LEAF[part] for part in parts)

    found = [
        matcher().match(condition).holds
        for condition in (Condition(all=leaves), Condition(any=leaves), Condition(none=leaves))
    ]

    assert found == [of_all, of_any, of_none]


Tree: TypeAlias = Truth | tuple[str, list["Tree"]]
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from([True, False, None]),
    lambda trees: st.tuples(
        st.sampled_from(["all", "any", "none"]), st.lists(trees, min_size=1, max_size=4)
    ),
    max_leaves=25,
)


@given(TREES)
def test_any_combination_agrees_with_kleene(tree: Tree) -> None:
    assert matcher().match(condition_of(tree)).holds is kleene(tree)


@given(TREES)
def test_only_an_open_answer_misses_facts_and_only_a_yes_has_evidence(tree: Tree) -> None:
    match = matcher().match(condition_of(tree))

    assert bool(match.missing) is (match.holds is None)
    assert match.holds is True or not match.seen


def condition_of(tree: Tree) -> Condition:
    if not isinstance(tree, tuple):
        return LEAF[tree]
    group, trees = tree
    parts = tuple(condition_of(part) for part in trees)
    return {
        "all": Condition(all=parts),
        "any": Condition(any=parts),
        "none": Condition(none=parts),
    }[group]


def kleene(tree: Tree) -> Truth:
    """Take false for 0, unknown for a half, true for 1: all is the least, any the greatest."""
    return {0.0: False, 0.5: None, 1.0: True}[weight(tree)]


def weight(tree: Tree) -> float:
    if not isinstance(tree, tuple):
        return {False: 0.0, None: 0.5, True: 1.0}[tree]
    group, trees = tree
    weights = [weight(part) for part in trees]
    return {"all": min(weights), "any": max(weights), "none": 1 - max(weights)}[group]


@pytest.mark.parametrize(
    ("condition", "values", "holds"),
    [
        (Condition(fact="f", is_="1"), ("1",), True),
        (Condition(fact="f", is_="1"), ("0", "1"), True),
        (Condition(fact="f", is_="1"), ("11",), False),
        (Condition(fact="f", is_="1"), (), False),
        (Condition(fact="f", is_=True), (True,), True),
        (Condition(fact="f", is_=True), (1,), False),
        (Condition(fact="f", is_=1), (True,), False),
        (Condition(fact="f", one_of=("1", "true")), ("true",), True),
        (Condition(fact="f", one_of=("1", "true")), ("no",), False),
        (Condition(fact="f", one_of=(1,)), (True,), False),
        (Condition(fact="f", family=("gfx10_3",)), ("gfx1031",), True),
        (Condition(fact="f", family=("gfx10_3",)), ("gfx1100",), False),
        (Condition(fact="f", family=("gfx10_3",)), ("gfx1100", "gfx1030"), True),
        (Condition(fact="f", family=("gfx10_3",)), ("gfx9999",), False),
        (Condition(fact="f", version=">=2.8,<2.12"), ("2.11.0",), True),
        (Condition(fact="f", version=">=2.8,<2.12"), ("2.12.0",), False),
        (Condition(fact="f", at_least=2), (2,), True),
        (Condition(fact="f", at_least=2), ("3",), True),
        (Condition(fact="f", at_least=2), (1,), False),
        (Condition(fact="f", at_least=2), ("many",), False),
        (Condition(fact="f", at_least=2), ("nan",), False),
        (Condition(fact="f", below=2), (1.5,), True),
        (Condition(fact="f", below=2), (2,), False),
        (Condition(fact="f", below=2), ("many",), False),
        (Condition(fact="f", below=2), ("nan",), False),
        (Condition(fact="f", below=2), (), False),
        (Condition(fact="f", contains=","), ("0,1",), True),
        (Condition(fact="f", contains=","), ("0",), False),
        (Condition(fact="f", starts_with="/tmp"), ("/tmp/x",), True),
        (Condition(fact="f", starts_with="/tmp"), ("/var/tmp",), False),
        (Condition(fact="f", present=True), ("",), True),
        (Condition(fact="f", present=True), (), False),
        (Condition(fact="f", present=False), (), True),
        (Condition(fact="f", present=False), ("x",), False),
        (Condition(fact="f", distinct=2), (16, 4), True),
        (Condition(fact="f", distinct=2), (16, 16), False),
        (Condition(fact="f", distinct=2), (), False),
    ],
)
def test_each_operator(condition: Condition, values: tuple[Scalar, ...], *, holds: bool) -> None:
    assert matcher(f=values).match(condition).holds is holds


def test_evidence_is_spelt_as_one_would_type_it() -> None:
    condition = Condition(
        all=(
            Condition(fact="yes", is_="here"),
            Condition(fact="variable:HSA_XNACK", is_="1"),
            Condition(check="sees"),
            Condition(none=(NO,)),
            Condition(any=(NO, Condition(fact="gpu.gfx", family=("gfx10_3",)))),
        )
    )
    values: dict[str, tuple[Scalar, ...]] = {
        "variable:HSA_XNACK": ("1",),
        "gpu.gfx": ("gfx1030", "gfx1100", "gfx1030"),
    }

    assert matcher(**values).match(condition) == Match(
        holds=True,
        seen=("yes is here", "HSA_XNACK=1", "one thing", "another", "gpu.gfx is gfx1030"),
        checked=("one thing", "another"),
        settings=("HSA_XNACK=1",),
    )


def test_a_no_has_no_evidence() -> None:
    assert matcher().match(Condition(all=(YES, NO))) == Match(holds=False)


def test_an_open_answer_names_every_fact_that_is_missing_once() -> None:
    condition = Condition(all=(OPEN, Condition(any=(NO, OPEN)), Condition(check="blind"), YES))

    assert matcher().match(condition) == Match(holds=None, missing=("open", "torch.arches"))


def test_a_check_says_yes_with_what_it_saw_and_no_with_nothing() -> None:
    assert matcher().match(Condition(check="sees")).holds is True
    assert matcher().match(Condition(check="fine")) == Match(holds=False)


def test_what_follows_a_no_is_not_looked_at() -> None:
    facts = Facts()
    facts.know("no", [])

    def crashes() -> Seen:
        raise ZeroDivisionError

    match = Matcher(facts, {"crashes": crashes}, {}).match(
        Condition(all=(NO, Condition(check="crashes")))
    )

    assert match == Match(holds=False)
