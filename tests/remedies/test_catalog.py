"""The table has every remedy, and each says all that a person wants to know of it."""

from __future__ import annotations

import pkgutil

import pytest

from rocsteady.knowledge.failures import load_failures
from rocsteady.remedies import rungs
from rocsteady.remedies.catalog import RUNGS
from rocsteady.remedies.remedy import ANY

REMEDIES = [rung.REMEDY for rung in RUNGS.values()]


def test_every_file_is_in_the_table_under_its_own_name() -> None:
    files = {module.name.replace("_", "-") for module in pkgutil.iter_modules(rungs.__path__)}

    assert set(RUNGS) == files


def test_the_table_is_in_the_order_of_the_ranks_and_no_two_are_equal() -> None:
    ranks = [remedy.rank for remedy in REMEDIES]

    assert ranks == sorted(set(ranks))
    assert (REMEDIES[0].id, REMEDIES[-1].id) == ("retry", "cpu")


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: str(remedy.id))
def test_a_remedy_says_what_it_costs_what_it_rests_on_and_when_not_to_use_it(
    remedy: object,
) -> None:
    for field in ("title", "cost", "evidence", "when_not"):
        text = getattr(remedy, field)
        assert text.strip(), field
        assert text.isascii(), field
        assert not set(text) & set("\n!"), field
    assert all(source.strip() for source in getattr(remedy, "sources", ()))
    assert getattr(remedy, "sources", ())


def test_a_remedy_answers_only_kinds_that_exist() -> None:
    kinds = {ANY, *load_failures().kinds}

    unknown = {
        (remedy.id, kind) for remedy in REMEDIES for kind in remedy.answers if kind not in kinds
    }

    assert unknown == set()


def test_nothing_claims_to_be_confirmed_on_hardware() -> None:
    assert [remedy.id for remedy in REMEDIES if remedy.confirmed_on] == []
