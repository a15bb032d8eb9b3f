"""Moments, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rocsteady.wording import DAY, HOUR, MINUTE, YEAR, moment, moment_within

NOW = datetime(2025, 11, 15, 12, 0, tzinfo=UTC).timestamp()
KOLKATA = timezone(timedelta(hours=5, minutes=30))


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (15 * DAY + 6 * HOUR, "Sun 30 Nov 18:00"),
        (-DAY, "Fri 14 Nov 12:00"),
        (60 * DAY, "Wed 14 Jan 12:00"),
        (200 * DAY, "Wed 3 Jun 2026 12:00"),
        (-400 * DAY, "Fri 11 Oct 2024 12:00"),
        (100 * 365 * DAY, "never"),
        (float("inf"), "never"),
        (float("nan"), "never"),
    ],
)
def test_a_moment_has_its_weekday_and_far_away_its_year(ahead: float, words: str) -> None:
    assert moment(NOW + ahead, now=NOW, zone=UTC) == words


def test_a_moment_is_one_of_its_zone() -> None:
    assert moment(NOW + 8 * HOUR, now=NOW, zone=KOLKATA) == "Sun 16 Nov 01:30"
    assert moment_within(NOW + 8 * HOUR, spread=0, now=NOW, zone=KOLKATA) == "16 Nov 01:30"
    assert moment_within(NOW + 8 * HOUR, spread=0, now=NOW, zone=UTC) == "today 20:00"


def test_without_a_zone_it_is_that_of_the_machine() -> None:
    here = datetime.fromtimestamp(NOW, tz=UTC).astimezone()

    assert moment(NOW, now=NOW) == f"{here:%a} {here.day} {here:%b} {here:%H:%M}"


@pytest.mark.parametrize(
    ("ahead", "spread", "words"),
    [
        (8, 1, "in 8 s"),
        (-8, 1, "today 11:59"),
        (5 * MINUTE, 10, "today 12:05"),
        (10 * DAY, 3 * HOUR, "25 Nov 12:00"),
        (10 * DAY, 2 * DAY, "25 Nov"),
        (100 * DAY, 3 * HOUR, "23 Feb"),
        (100 * DAY, 60 * DAY, "Feb 2026"),
        (3 * YEAR, 30 * DAY, "15 Nov 2028"),
        (8 * YEAR, 0, "Nov 2033"),
        (100 * 365 * DAY, 0, "never"),
        (float("inf"), 0, "never"),
    ],
)
def test_a_moment_is_no_closer_than_it_is_known(ahead: float, spread: float, words: str) -> None:
    assert moment_within(NOW + ahead, spread=spread, now=NOW, zone=UTC) == words
