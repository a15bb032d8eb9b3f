"""Work is counted by the newest line that matches, whatever comes between."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.hangs.line_pattern import LinePattern
from rocsteady.hangs.output import OUTPUT_KEPT, LogCount, OutputCounter, PrintedProgress

EPISODE = r"episode (?P<n>[\d,]+)(?:/(?P<total>\d+))?"


def count(pattern: str = EPISODE) -> LogCount:
    return LogCount(LinePattern(pattern))


def at(n: int, total: int | None = None) -> PrintedProgress:
    return PrintedProgress(n=n, total=total, rate=None)


@pytest.mark.parametrize(
    ("printed", "progress"),
    [
        ("episode 12/300\n", at(12, 300)),
        ("episode 12\nloss 0.5\n\n", at(12)),
        ("episode 1/300\nepisode 2/300\r\n", at(2, 300)),
        ("episode 1,200 of many\n", at(1200)),
        ("\x1b[32mepisode\x1b[0m 7/300\n", at(7, 300)),
        ("\repisode 7/300 [00:01]\repisode 8/300 [00:02]", at(8, 300)),
        ("episode 7/300\repisode 8/3", at(7, 300)),  # the rest of it may follow
        ("episode ,\nepisode 9999999999999999999\n", None),
        ("x" * 3000 + "episode 5\n", None),
        ("step 5/300\n", None),
        ("", None),
    ],
)
def test_the_newest_line_that_matches_tells(printed: str, progress: PrintedProgress | None) -> None:
    counted = count()
    counted.feed(printed.encode())

    assert counted.progress() == progress
    assert counted.progress() == progress


def test_the_last_line_needs_no_end_once_nothing_follows() -> None:
    counted = count()
    counted.feed(b"episode 299/300\nepisode 300/300")

    assert counted.progress() == at(299, 300)
    assert counted.progress(ended=True) == at(300, 300)


def test_a_number_is_not_cut_where_the_line_is() -> None:
    counted = count("episode (?P<n>[0-9]+)")  # 2,048 characters are searched
    counted.feed(b" " * 2037 + b"episode 1234\n")

    assert counted.progress() is None


@given(st.integers(1, 40), st.integers(0, 99))
def test_it_does_not_matter_how_it_is_printed(size: int, last: int) -> None:
    text = "".join(f"loss 0.1\nepisode {n}/99\n" for n in range(last + 1)).encode()
    counted = count()
    for start in range(0, len(text), size):
        counted.feed(text[start : start + size])
        if start % 3 == 0:
            counted.progress()

    assert counted.progress() == at(last, 99)


def test_a_flood_is_read_from_its_end_in_little_memory() -> None:
    counted = count()
    counted.feed(b"episode 1/3\n")
    tracemalloc.start()
    for line in (b"all the same\n", b"episode 2/3\n", b"no end "):
        for _ in range(64):
            counted.feed(line * 5000)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert held < 4 * OUTPUT_KEPT
    assert counted.progress() is None  # what the flood began with is gone, and so is a beginning
    counted.feed(b" episode 9/9\nepisode 3/3\n")
    assert counted.progress() == at(3, 3)


def test_where_the_job_names_a_pattern_other_counters_do_not_count() -> None:
    plain, named = OutputCounter(), OutputCounter(EPISODE)
    for counter in (plain, named):
        counter.feed(b"episode 3/300: \nstep 17/20\n", 1.0)

    assert plain.progress == at(17, 20)
    assert named.progress == at(3, 300)
    assert named.output == plain.output
