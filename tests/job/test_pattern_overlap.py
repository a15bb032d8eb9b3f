"""Two patterns overlap exactly if some file matches both."""

from __future__ import annotations

import fnmatch
import itertools

import pytest

from rocsteady.job.pattern_overlap import overlap


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("checkpoints/*.pt", "checkpoints/*.pt"),
        ("checkpoints/*.pt", "checkpoints/step-*.pt"),
        ("checkpoints/a-*.pt", "checkpoints/*-last.pt"),
        ("./out/../checkpoints/*.pt", "checkpoints/last.pt"),
        ("**/*.pt", "checkpoints/deep/last.pt"),
        ("checkpoints/**", "checkpoints/deep/last.pt"),
        ("checkpoints/[0-9]*.pt", "checkpoints/?.pt"),
        ("*/last.pt", "checkpoints/*"),
    ],
)
def test_these_share_a_file(one: str, other: str) -> None:
    assert overlap([one], [other]) == one
    assert overlap([other], ["elsewhere/*.bin", one]) == other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("checkpoints/*.pt", "checkpoints/*.ckpt"),
        ("checkpoints/*.pt", "checkpoints/deep/last.pt"),
        ("a/**/last.pt", "b/last.pt"),
        ("small/*.pt", "large/*.pt"),
        ("step-*.pt", "epoch-*.pt"),
    ],
)
def test_these_do_not(one: str, other: str) -> None:
    assert not overlap([one], [other])
    assert not overlap([other], [one])
    assert not overlap([], [one])


def test_for_short_patterns_it_is_what_trying_all_names_says() -> None:
    patterns = [
        "".join(marks) for size in (1, 2, 3) for marks in itertools.product("ab*?", repeat=size)
    ]
    names = [
        "".join(marks) for size in range(1, 6) for marks in itertools.product("abc", repeat=size)
    ]
    found = {each: {name for name in names if fnmatch.fnmatchcase(name, each)} for each in patterns}
    for one, other in itertools.combinations(patterns, 2):
        assert bool(overlap([one], [other])) == bool(found[one] & found[other]), (one, other)
