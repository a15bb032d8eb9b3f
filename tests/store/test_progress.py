from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocsteady.model import RunState
from rocsteady.store.database import JOURNAL, connect, put, select
from rocsteady.store.progress import DAY, FINE, HOUR, LADDER, MINUTE, Meter, age, merged
from rocsteady.store.values import SAVED_GAUGE, Bucket, Gauge, Sample
from rocsteady.store.writer import DISK_RETRY

LONG_AGO = -100_000.0  # so that buckets are a minute wide


def sample(at: float, step: int, **options: object) -> Sample:
    fields = {"at": at, "step": step, "verdict": RunState.HEALTHY, "quiet": 0.0, **options}
    return Sample(**fields)  # type: ignore[arg-type] # as the test says


def bucket(start: float, first: int, last: int, **options: object) -> Bucket:
    fields: dict[str, object] = {
        "run": 1,
        "attempt": 1,
        "start": start,
        "width": MINUTE,
        "first_step": first,
        "last_step": last,
        "total": None,
        "first_progress": start + 1,
        "last_progress": start + 59,
        "quiet": 1.0,
        "seconds_in": {"compute": 50.0},
        "seconds_as": {"healthy": 60.0},
    }
    return Bucket(**{**fields, **options})  # type: ignore[arg-type] # as the test says


def test_samples_of_a_minute_become_one_bucket() -> None:
    meter = Meter(1, 1, began=LONG_AGO)
    meter.add(sample(600.0, 10, seconds_in={"data": 1.0}))
    meter.add(sample(610.0, 30, seconds_in={"data": 1.5, "compute": 8.0}, total=500))
    meter.add(sample(625.0, 30, quiet=15.0, verdict=RunState.SLOW, seconds_in={"data": 16.5}))

    finished, current = meter.add(sample(661.0, 90))

    assert finished == Bucket(
        run=1,
        attempt=1,
        start=600.0,
        width=60,
        first_step=10,
        last_step=30,
        total=500,
        first_progress=610.0,
        last_progress=610.0,
        quiet=15.0,
        seconds_in={"data": 16.5, "compute": 8.0},
        seconds_as={RunState.HEALTHY: 10.0, RunState.SLOW: 15.0},
    )
    assert (current.first_step, current.last_step, current.start) == (30, 90, 660.0)


def test_an_attempt_begins_with_fine_buckets_and_goes_on_with_minutes() -> None:
    meter = Meter(1, 1)
    kept = {}
    for second in range(5, 1205):
        for each in (*meter.add(sample(float(second), second)), *meter.current()):
            kept[each.start] = each

    fine = [each for each in kept.values() if each.width == FINE]
    whole = [each for each in kept.values() if each.width == MINUTE]
    assert [each.start for each in fine] == [float(n) for n in range(5, 660)]
    assert [each.start for each in whole] == [660.0 + 60 * n for n in range(10)]
    assert sum(each.last_step - each.first_step for each in (*fine, *whole)) == 1199


def test_fine_buckets_become_minutes_after_an_hour(database: sqlite3.Connection) -> None:
    for n in range(600):
        put(bucket(n * FINE, n, n + 1, width=FINE))(database)

    age(database, 1, now=HOUR + 5 * MINUTE)

    kept = select(database, Bucket, "ORDER BY start")
    assert [(b.start, b.width) for b in kept[:5]] == [(60.0 * n, MINUTE) for n in range(5)]
    assert {b.width for b in kept[5:]} == {FINE}
    assert [(b.first_step, b.last_step) for b in kept[:2]] == [(0, 60), (60, 120)]


def test_a_bucket_is_written_every_few_seconds_and_not_at_every_look() -> None:
    meter = Meter(1, 1, began=LONG_AGO)

    written = [bool(meter.add(sample(600 + n / 10, n))) for n in range(300)]

    assert 5 <= sum(written) <= 7


def test_seconds_are_written_together_and_none_is_lost() -> None:
    meter = Meter(1, 1, began=600.0)

    written = [meter.add(sample(600 + n / 5, n)) for n in range(100)]

    assert 9 <= sum(map(bool, written)) <= 11
    starts = {each.start for buckets in (*written, meter.current()) for each in buckets}
    assert starts == {600.0 + n for n in range(20)}


def test_the_step_of_a_checkpoint_is_exact() -> None:
    meter = Meter(1, 1, began=LONG_AGO)
    meter.add(sample(600.0, 12_345_677, measured={SAVED_GAUGE: 12_345_678.0}))

    (bucket,) = meter.current()
    assert bucket.gauges[SAVED_GAUGE].most == 12_345_678


def test_many_short_phases_are_not_rounded_away() -> None:
    meter = Meter(1, 1, began=LONG_AGO)
    for n in range(500):
        meter.add(sample(600 + n / 10, n, seconds_in={"data": n * 0.0004}))

    assert meter.current()[0].seconds_in == {"data": 0.2}


def test_a_clock_that_is_set_back_reopens_nothing() -> None:
    meter = Meter(1, 1, began=LONG_AGO)
    meter.add(sample(6000.0, 10))
    meter.add(sample(3000.0, 20))

    (current,) = meter.current()

    assert (current.start, current.last_step) == (6000.0, 20)
    assert current.seconds_as == {}


def test_a_phase_that_counts_from_0_again_is_another_process() -> None:
    meter = Meter(1, 1, began=LONG_AGO)
    meter.add(sample(600.0, 1, seconds_in={"data": 50.0}))
    meter.add(sample(601.0, 2, seconds_in={"data": 2.0}))

    assert meter.current()[0].seconds_in == {"data": 52.0}


def test_merging_keeps_what_a_reader_asks_for() -> None:
    whole = merged(
        [
            bucket(0, 0, 10, quiet=3.0),
            bucket(60, 10, 10, first_progress=None, last_progress=None, quiet=70.0),
            bucket(120, 10, 25, total=99),
        ],
        start=0.0,
        width=600,
    )

    assert whole == bucket(
        0,
        0,
        25,
        width=600,
        total=99,
        first_progress=1.0,
        last_progress=179.0,
        quiet=70.0,
        seconds_in={"compute": 150.0},
        seconds_as={"healthy": 180.0},
    )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(
        connect(tmp_path / "journal.db", JOURNAL, wal=True, busy=DISK_RETRY)
    ) as it:
        yield it


def test_old_minutes_become_ten_minutes_and_hours_and_nothing_is_lost(
    database: sqlite3.Connection,
) -> None:
    minutes = 20 * DAY // MINUTE
    database.execute("BEGIN")
    for n in range(minutes):
        put(bucket(n * MINUTE, n, n + 1))(database)

    for now in range(0, 20 * DAY + 1, DAY // 4):
        age(database, 1, float(now))
    database.execute("COMMIT")

    kept = select(database, Bucket, "ORDER BY start")
    assert {b.width for b in kept} == {MINUTE, 10 * MINUTE, HOUR}
    assert len(kept) == 1440 + 13 * 144 + 6 * 24
    assert all(a.last_step == b.first_step for a, b in pairwise(kept))
    assert all(a.start + a.width == b.start for a, b in pairwise(kept))
    assert sum(b.seconds_in["compute"] for b in kept) == minutes * 50
    database.close()


def test_attempts_and_other_runs_are_not_merged_with_each_other(
    database: sqlite3.Connection,
) -> None:
    put(bucket(0, 0, 5))(database)
    put(bucket(60, 3, 9, attempt=2))(database)
    put(bucket(60, 3, 9, run=2))(database)

    age(database, 1, 2.0 * DAY)

    kept = select(database, Bucket, "ORDER BY run, attempt")
    assert [(b.run, b.attempt, b.width) for b in kept] == [(1, 1, 600), (1, 2, 600), (2, 1, 60)]
    database.close()


def test_each_width_holds_whole_numbers_of_the_one_before() -> None:
    for (width, keep), (wider, _) in pairwise(LADDER):
        assert wider % width == 0
        assert keep is not None
        assert keep % wider == 0


@given(st.lists(st.tuples(st.floats(0, 200), st.integers(0, 50)), min_size=1, max_size=60))
def test_steps_are_neither_lost_nor_counted_twice(moves: list[tuple[float, int]]) -> None:
    meter, at, step = Meter(1, 1, began=LONG_AGO), 0.0, 0
    written: dict[float, Bucket] = {}
    meter.add(sample(at, step))
    for passed, made in moves:
        at, step = at + passed, step + made
        written.update({b.start: b for b in meter.add(sample(at, step))})
    written.update({b.start: b for b in meter.current()})

    kept = [written[start] for start in sorted(written)]

    assert sum(b.last_step - b.first_step for b in kept) == step


def test_gauges_keep_least_most_and_mean_through_aging() -> None:
    meter = Meter(1, 1, began=LONG_AGO)
    for second, loss in enumerate((4.0, 2.0, 3.0)):
        meter.add(sample(60.0 + second, second, measured={"loss": loss}))
    meter.add(sample(64.0, 4, measured={"loss": math.nan}))
    (minute,) = meter.current()
    assert minute.gauges == {"loss": Gauge(least=2.0, most=4.0, mean=3.0, count=3)}
    other = replace(
        minute, start=120.0, gauges={"loss": Gauge(least=1.0, most=1.0, mean=1.0, count=1)}
    )
    whole = merged((minute, other), start=0.0, width=600)
    assert whole.gauges == {"loss": Gauge(least=1.0, most=4.0, mean=2.5, count=4)}
