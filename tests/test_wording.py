"""Durations, sizes and plurals have one format each."""

from __future__ import annotations

import pytest

from rocsteady.wording import (
    DAY,
    HOUR,
    YEAR,
    duration,
    inside_a_sentence,
    plural,
    rough_duration,
    size,
)


@pytest.mark.parametrize(
    ("seconds", "two_units", "one_unit"),
    [
        (0.0, "0.0 s", "0 s"),
        (0.04, "40 ms", "0 s"),
        (0.93, "0.9 s", "1 s"),
        (9.96, "10 s", "10 s"),
        (119.4, "119 s", "119 s"),
        (119.6, "2 min", "120 s"),
        (190, "3 min 10 s", "3 min"),
        (600, "10 min", "10 min"),
        (3599.7, "1 h", "60 min"),
        (7500, "2 h 5 min", "2 h"),
        (36 * HOUR, "36 h", "36 h"),
        (15 * DAY + 6 * HOUR, "15 d 6 h", "15 d"),
        (16 * DAY - 1, "16 d", "16 d"),
        (140 * DAY, "140 d", "140 d"),
        (3 * YEAR, "3 years", "3 years"),
        (4321 * YEAR, "4,321 years", "4,321 years"),
    ],
)
def test_a_duration(seconds: float, two_units: str, one_unit: str) -> None:
    assert (duration(seconds), rough_duration(seconds)) == (two_units, one_unit)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1 MiB"),
        (20 * 1024**3, "20 GiB"),
        (1.25 * 1024**4, "1.2 TiB"),
        (5000 * 1024**4, "5,000 TiB"),
    ],
)
def test_a_size(amount: float, words: str) -> None:
    assert size(amount) == words


def test_a_size_can_be_rounded_to_whole_units() -> None:
    assert size(15.9 * 1024**3, digits=0) == "16 GiB"
    assert size(1023.7 * 1024**2, digits=0) == "1 GiB"


def test_a_plural() -> None:
    assert plural(0, "rule") == "0 rules"
    assert plural(1, "rule") == "1 rule"
    assert plural(2, "thing puts", "things put") == "2 things put"
    assert plural(1_970_000, "step") == "1,970,000 steps"


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_a_duration_that_is_no_number(seconds: float) -> None:
    assert duration(seconds) == "an unknown time"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Hung in the backward pass", "hung in the backward pass"),
        ("GPU memory is fragmented", "GPU memory is fragmented"),
        ("MIOpen cannot use its cache", "MIOpen cannot use its cache"),
        ("GPUs cannot reach each other", "GPUs cannot reach each other"),
        ("A rank ended", "a rank ended"),
        ("", ""),
    ],
)
def test_names_keep_their_capitals_inside_a_sentence(text: str, said: str) -> None:
    assert inside_a_sentence(text) == said
