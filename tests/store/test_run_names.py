from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.errors import JournalError
from rocsteady.store.run_names import ADJECTIVES, ANIMALS, check_name, new_name


def test_every_pair_is_a_name_and_there_are_thousands() -> None:
    pairs = {f"{adjective}-{animal}" for adjective in ADJECTIVES for animal in ANIMALS}

    assert all(check_name(pair) for pair in pairs)
    assert len(pairs) == len(ADJECTIVES) * len(ANIMALS) > 20_000


def test_a_name_is_never_given_twice() -> None:
    chance = random.Random(1)  # noqa: S311 - no secret, and the same each time
    taken: set[str] = set()

    for _ in range(5000):
        taken.add(new_name(taken, chance))

    assert len(taken) == 5000


def test_a_number_is_added_when_every_pair_is_taken() -> None:
    taken = {f"{adjective}-{animal}" for adjective in ADJECTIVES for animal in ANIMALS}

    assert new_name(taken).endswith("-2")


@pytest.mark.parametrize(
    "name",
    ["", "Calm-Otter", "../up", "calm otter", "-calm", "calm-", "a--b", "é", "x" * 49, "nul"],
)
def test_what_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(JournalError):
        check_name(name)


@given(st.text(max_size=60))
def test_a_name_that_passes_is_safe_as_a_folder(name: str) -> None:
    try:
        check_name(name)
    except JournalError:
        return
    assert name.isascii()
    assert not set(name) & set("/\\. \n\0")
    assert not name.startswith("-")
