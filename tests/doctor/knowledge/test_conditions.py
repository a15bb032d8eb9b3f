"""The shape of a condition: its leaves, the operator of each, and what is a range."""

from __future__ import annotations

import pytest

from rocsteady.doctor.knowledge.rules import OPERATORS, Condition, is_range, leaves, operator_of

ONE = Condition(fact="a", is_=False)
TWO = Condition(check="b")
THREE = Condition(fact="c", present=False)


def test_leaves_are_found_at_any_depth_in_order() -> None:
    tree = Condition(all=(ONE, Condition(any=(TWO, Condition(none=(THREE,))))))

    assert list(leaves(tree)) == [ONE, TWO, THREE]
    assert list(leaves(ONE)) == [ONE]


@pytest.mark.parametrize(
    ("leaf", "operator"),
    [
        (Condition(fact="f", is_=False), "is_"),
        (Condition(fact="f", one_of=("a",)), "one_of"),
        (Condition(fact="f", family=("gfx11_0",)), "family"),
        (Condition(fact="f", version=">1"), "version"),
        (Condition(fact="f", at_least=0), "at_least"),
        (Condition(fact="f", below=0), "below"),
        (Condition(fact="f", contains="a"), "contains"),
        (Condition(fact="f", starts_with="a"), "starts_with"),
        (Condition(fact="f", present=False), "present"),
        (Condition(fact="f", distinct=2), "distinct"),
    ],
)
def test_the_operator_of_a_leaf_also_if_what_it_asks_for_is_false_or_0(
    leaf: Condition, operator: str
) -> None:
    assert operator_of(leaf) == operator
    assert operator in OPERATORS


@pytest.mark.parametrize(
    ("text", "good"),
    [(">=2.8,<2.12", True), ("==6.*", True), ("2.8", False), (">=2.8 <3", False), ("new", False)],
)
def test_a_range_is_what_pip_reads(text: str, *, good: bool) -> None:
    assert is_range(text) is good
