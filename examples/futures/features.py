"""From ticks to bars to 54 features and a label, a chunk of the file at a time.

A bar is 10 ticks. A row of the table that is written belongs to one bar and uses nothing later than
its close, but for the label: is the average close of the next 8 bars higher? Rows do not depend on
the size of the chunks: each chunk begins with the ticks that the last one could not finish.
"""

import time
from itertools import islice

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch.utils.data import IterableDataset

TICK_SIZE = 0.25  # prices are multiples of it
TICKS_PER_BAR = 10
HORIZONS = (1, 2, 4, 8, 16, 32)  # bars
PROFILE_BARS = 64  # the volume profile at a bar is that of the last 64 bars
LABEL_BARS = 8
FEATURES = 54
COLUMNS = FEATURES + 1  # the label comes last
BATCHES_PER_BLOCK = 64
BLOCK = 8192  # rows of the table read at a time to measure it
MOST_LEVELS = 10_000  # price levels in one chunk; a wrong price must not eat the memory


def horizon_features(bars, first, stop):
    """Seven features for each of the six horizons."""
    close = bars["close"]
    moves = np.abs(np.diff(close, prepend=close[0]))
    now = slice(first, stop)
    for bars_back in HORIZONS:
        before = slice(first - bars_back, stop - bars_back)
        # Row i of a window: the values of the bars_back bars that end with bar first + i.
        window = slice(first - bars_back + 1, stop - bars_back + 1)
        high, low, volume, signed, money, moved = (
            sliding_window_view(series, bars_back)[window]
            for series in (*(bars[k] for k in ("high", "low", "volume", "signed", "money")), moves)
        )
        yield close[now] - close[before]
        yield high.max(1) - low.min(1)
        yield np.log(volume.mean(1))
        yield signed.sum(1) / volume.sum(1)  # buyers minus sellers
        yield moved.mean(1)  # volatility
        yield close[now] - money.sum(1) / volume.sum(1)  # from the volume-weighted average price
        yield bars["vix"][now] - bars["vix"][before]


def profile_features(level, size, first, stop):
    """Eight features of the volume profile: how much was traded at each price lately."""
    low = level.min()
    levels = int(level.max() - low) + 1
    if levels > MOST_LEVELS:
        raise SystemExit(f"prices of one chunk are {levels} ticks apart: is the file right?")
    cells = (level - low).astype(np.int64) + np.arange(len(level))[:, None] * levels
    traded = np.bincount(cells.ravel(), size.ravel(), minlength=len(level) * levels)
    traded = traded.reshape(-1, levels).cumsum(0)
    profile = traded[first:stop] - traded[first - PROFILE_BARS : stop - PROFILE_BARS]
    below = profile.cumsum(1)  # whole numbers, here and above: exact whatever the chunk
    whole = below[:, -1]
    close = level[first:stop, -1] - low
    at_close = close.astype(np.int64)[:, None]
    point_of_control = profile.argmax(1)  # the price with the most volume
    value_low, value_high = ((below < share * whole[:, None]).sum(1) for share in (0.15, 0.85))
    yield close - point_of_control
    yield close - value_low
    yield close - value_high
    yield value_high - value_low  # the middle 70 % of the volume lies in between
    yield profile.max(1) / whole
    yield np.take_along_axis(profile, at_close, 1)[:, 0] / whole
    yield np.take_along_axis(below, at_close, 1)[:, 0] / whole
    yield (point_of_control * whole - profile @ np.arange(levels)) / whole  # from the average


def moment_features(bars, first, stop):
    """Four features of the bar itself."""
    now = slice(first, stop)
    angle = bars["end"][now] / 86_400_000 % 1 * 2 * np.pi  # time of day
    yield bars["vix"][now]
    yield np.log1p(bars["end"][now] - bars["start"][now])
    yield np.sin(angle)
    yield np.cos(angle)


def make_table(ticks):
    """Return a row of features and label for each bar with enough bars before and after it."""
    ticks = ticks.reshape(-1, TICKS_PER_BAR, 5)
    when, price, size, side, vix = (ticks[:, :, column] for column in range(5))
    level = np.rint(price / TICK_SIZE)
    bars = {
        "start": when[:, 0],
        "end": when[:, -1],
        "close": level[:, -1],
        "high": level.max(1),
        "low": level.min(1),
        "volume": size.sum(1),
        "signed": (size * side).sum(1),
        "money": (size * level).sum(1),
        "vix": vix[:, -1],
    }
    first, stop = PROFILE_BARS, len(ticks) - LABEL_BARS
    later = sliding_window_view(bars["close"], LABEL_BARS)[first + 1 : stop + 1].mean(1)
    columns = [
        *horizon_features(bars, first, stop),
        *profile_features(level, size, first, stop),
        *moment_features(bars, first, stop),
        later > bars["close"][first:stop],
    ]
    return np.column_stack(columns).astype(np.float32)


def write_features(data, path, fraction, chunk_size):
    """Read the first part of a CSV file and write the table of its features, both by chunks."""
    with data.open("rb") as file:
        rows = int(fraction * (sum(1 for _ in file) - 1))
    overlap = (PROFILE_BARS + LABEL_BARS) * TICKS_PER_BAR
    left = np.empty((0, 5))
    said = time.monotonic()
    part = path.with_name(path.name + ".part")
    with data.open(encoding="ascii") as source, part.open("wb") as table:
        next(source)  # the header
        for start in range(0, rows, chunk_size):
            lines = islice(source, min(chunk_size, rows - start))
            left = np.concatenate([left, np.loadtxt(lines, delimiter=",", ndmin=2)])
            whole = len(left) // TICKS_PER_BAR * TICKS_PER_BAR
            if whole > overlap:
                make_table(left[:whole]).tofile(table)
                left = left[whole - overlap :]
            if time.monotonic() - said > 2:
                said = time.monotonic()
                print(f"features: row {start + chunk_size} of {rows}", flush=True)
    part.replace(path)


def count_rows(path):
    return path.stat().st_size // (4 * COLUMNS)


def read_rows(path, start, stop):
    """Read rows of the table. Not by memory map: its pages would count as ours."""
    count = (stop - start) * COLUMNS
    return np.fromfile(path, np.float32, count, offset=start * 4 * COLUMNS).reshape(-1, COLUMNS)


class Batches(IterableDataset):
    """Rows of the table in batches, read a block at a time: memory does not grow with the data.

    With a random generator the blocks, and the rows in each, come in random order.
    """

    def __init__(self, path, start, stop, batch_size, rng=None):
        self.path, self.start, self.stop = path, start, stop
        self.batch_size, self.rng = batch_size, rng

    def __iter__(self):
        block = self.batch_size * BATCHES_PER_BLOCK
        starts = np.arange(self.start, self.stop, block)
        if self.rng:
            self.rng.shuffle(starts)
        for start in starts:
            rows = read_rows(self.path, start, min(start + block, self.stop))
            if self.rng:
                rows = rows[self.rng.permutation(len(rows))]
            yield from torch.from_numpy(rows).split(self.batch_size)


def mean_and_deviation(path, stop):
    """Measure each feature in the rows before stop, and only in those."""
    total, squares = np.zeros(FEATURES), np.zeros(FEATURES)
    for start in range(0, stop, BLOCK):
        rows = read_rows(path, start, min(start + BLOCK, stop))[:, :FEATURES].astype(np.float64)
        total += rows.sum(0)
        squares += (rows**2).sum(0)
    mean = total / stop
    deviation = np.sqrt(np.maximum(squares / stop - mean**2, 1e-12))
    return mean.astype(np.float32), deviation.astype(np.float32)
