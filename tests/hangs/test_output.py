"""A bar whose clock goes on is not work; a counter that moves is."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.hangs.output import OutputCounter, PrintedProgress, take_apart
from rocsteady.hangs.values import Output


def counted(*pieces: str) -> int:
    """Return how many signs of work these pieces gave, each printed a second after the other."""
    counter = OutputCounter()
    for second, piece in enumerate(pieces):
        counter.feed(piece.encode(), float(second))
    return counter.output.counters


TQDM = "\r 12%|█▏        | {n}/7500 [{clock}<52:00, {rate}it/s, loss=0.5]"
RICH = "\x1b[2K\r\x1b[32mTraining\x1b[0m \x1b[38;5;197m━━━╸\x1b[0m {n}/7500 {percent}% 0:00:{clock}"
KERAS = "\r{n}/100 [===>......] - ETA: 0:{clock} - loss: 0.5"


@pytest.mark.parametrize("bar", [TQDM, RICH, KERAS])
def test_a_bar_that_redraws_its_clock_and_rate_is_one_sign(bar: str) -> None:
    pieces = [bar.format(n=9, clock=f"{second:02}", rate=second, percent=1) for second in range(50)]
    assert counted(*pieces) == 1


@pytest.mark.parametrize("bar", [TQDM, RICH, KERAS])
def test_a_bar_whose_counter_moves_is_a_sign_each_time(bar: str) -> None:
    pieces = [bar.format(n=n, clock="10", rate=2, percent=1) for n in range(50)]
    assert counted(*pieces, "\n") == 50


@pytest.mark.parametrize(
    "line",
    [
        "[07:12:{clock}] still waiting for the device\n",
        "2026-11-15 07:{clock}:12,123 INFO heartbeat\n",
        "2026-11-15T07:12:{clock}.123Z alive\n",
        "still running, elapsed {n}s\n",
        "waited {n} seconds\n",
        "uptime: {n}\n",
        "[   {n}.123456] helper thread is fine\n",
        "17000001{n}.25 tick\n",
        "ETA 0:00:{clock} at {n}.5 MB/s\n",
        "\rworking {spin}",
        "the same line\n",
    ],
)
def test_lines_that_differ_in_their_clock_only_are_one_sign(line: str) -> None:
    pieces = [
        line.format(clock=f"{second:02}", n=second + 10, spin="⠋⠙⠹⠸"[second % 4])
        for second in range(40)
    ]
    assert counted(*pieces) <= 1


@pytest.mark.parametrize(
    "line",
    [
        "step {n}: loss 0.5\n",
        "Epoch {n}\n",
        "Epoch [{n}/100], Step [100/600]\n",
        "{{'loss': 0.5, 'epoch': {n}.5}}\n",
        "iter={n} time 0.2s\n",
        "batch {n} of 100\n",
        "tuning candidate {n}\n",
        "\rDownloading {n}%",
        "\r{n}it [00:10, 5.0it/s]",
        "\rreading {n} files",
    ],
)
def test_a_number_that_counts_is_a_sign_each_time(line: str) -> None:
    assert counted(*(line.format(n=n) for n in range(1, 41)), "\n") == 40


def test_bars_below_each_other_are_told_apart() -> None:
    inner = [f"\n\rbatches: {n % 5}/5 [00:0{n % 5}<00:05]\x1b[A" for n in range(20)]
    outer = ["\repochs: 3/10 [00:10<00:30]" for _ in inner]
    pieces = [piece for pair in zip(inner, outer, strict=True) for piece in pair]

    assert counted(*pieces, "\n") == 21  # every inner change, and the outer one once


def test_a_message_without_a_number_counts_when_new() -> None:
    assert counted("compiling\n", "tuning\n", "compiling\n", "done\n") == 3


def test_a_monitor_that_prints_the_same_few_values_again_is_no_sign() -> None:
    assert (
        counted(*(f"GPU {40 + second % 3} C, {98 + second % 2} %\n" for second in range(60))) == 6
    )


def test_a_counter_that_begins_again_each_epoch_is_a_sign_each_time() -> None:
    assert counted(*(f"batch {n % 5} of 5\n" for n in range(300))) == 300


def test_a_bar_is_dated_when_it_was_drawn_not_when_it_was_drawn_over() -> None:
    counter = OutputCounter()
    counter.feed(b"\r5/10 [00:05<00:05]", 5.0)
    counter.feed(b"\r5/10 [01:05<00:05]", 65.0)

    assert counter.output.at == 5.0


def test_windows_line_ends_do_not_draw_again() -> None:
    assert counted("one\r\n", "two\r\n", "three\r\n") == 3


def test_n_total_and_rate_are_kept() -> None:
    counter = OutputCounter()
    counter.feed(b"\r 12%|#2  | 904/7500 [07:10<52:00,  2.10it/s]\r ", 1.0)
    assert counter.progress == PrintedProgress(n=904, total=7500, rate=2.1, unnamed=True)

    counter.feed(b" 12%|#2  | 905/7500 [07:10<52:00,  4.00s/it]\r ", 2.0)
    assert counter.progress == PrintedProgress(n=905, total=7500, rate=0.25, unnamed=True)

    counter.feed(b"\nstep 7\n", 3.0)
    assert counter.progress == PrintedProgress(n=7, total=None, rate=None)


def test_bytes_and_lines_are_counted_and_the_time_is_that_of_the_last_sign() -> None:
    counter = OutputCounter()
    counter.feed(b"step 1\nstep", 5.0)
    counter.feed(b" 2\nstep 2\n", 6.0)
    counter.feed(b"step 2\n", 7.0)

    assert counter.output == Output(bytes=28, lines=4, counters=2, at=6.0)


TEXT = st.text(alphabet="ab 019/%[]:<.\r\n\x1b[mKA█step", max_size=400).map(str.encode)


@given(text=TEXT, cuts=st.lists(st.integers(0, 400), max_size=8))
def test_any_split_gives_the_same(text: bytes, cuts: list[int]) -> None:
    whole, split = OutputCounter(), OutputCounter()
    whole.feed(text, 1.0)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for begin, end in pairwise(edges):
        split.feed(text[begin:end], 1.0)

    assert split.output == whole.output
    assert split.progress == whole.progress


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_bytes_are_taken(pieces: list[bytes]) -> None:
    counter = OutputCounter()
    for second, piece in enumerate(pieces):
        counter.feed(piece, float(second))

    assert counter.output.bytes == sum(map(len, pieces))
    assert counter.output.lines == sum(piece.count(b"\n") for piece in pieces)


def test_a_flood_is_read_in_part_and_keeps_its_memory() -> None:
    counter = OutputCounter()
    chunk = b"".join(b"line %d of a flood of output that never ends\n" % n for n in range(2000))
    endless = b"x" * 10_000_000
    tracemalloc.start()
    for number in range(500):
        counter.feed(chunk, number * 0.1)
    counter.feed(endless, 60.0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert counter.output.lines == 1_000_000
    assert counter.output.counters > 1000
    assert most < 2_000_000


def test_reading_goes_on_at_a_whole_line_after_a_flood() -> None:
    counter = OutputCounter()
    counter.feed(b"y" * 100_000 + b"\nstep 1", 1.0)  # cut in mid-line
    before = counter.output.counters
    counter.feed(b"2\nstep 13\n", 2.0)

    assert counter.progress == PrintedProgress(n=13, total=None, rate=None)
    assert counter.output.counters == before + 1


@pytest.mark.parametrize("line", ["connecting to redis://cache:6379/0", "loaded 12/7 shards"])
def test_more_than_all_is_no_progress(line: str) -> None:
    assert take_apart(line).progress is None
