"""Write tick-like CSV: time, price, size, side, vix. Nothing in it comes from a market.

Two things that can be learnt are put in. The price is pulled back to a slowly moving value where
most volume trades, so the point of control of the volume profile shows where it will go; and the
side that trades more moves the price a little later.
"""

import argparse
import math
from itertools import accumulate
from pathlib import Path

import numpy as np

CHUNK = 100_000  # rows made and written at a time, so 100 M rows need no more memory than 1 M
TICK_SIZE = 0.25
PRESETS = {"small": 60_000, "note": 5_000_000}  # rows
OPENING = 1_700_000_000_000  # ms since 1970


def wander(noise, keep, start):
    """x[t] = keep * x[t - 1] + noise[t], from what it was at the end of the last chunk."""
    return np.array(list(accumulate(noise.tolist(), lambda x, e: keep * x + e, initial=start))[1:])


def make_chunk(rng, rows, last):
    """Return the columns of the next rows, and move on what they end with."""
    time = last["time"] + np.cumsum(rng.exponential(200, rows))
    vix = wander(rng.normal(0, 0.001, rows), 0.9999, last["vix"])  # logarithm, around 18
    flow = wander(rng.normal(0, 0.1, rows), 0.99, last["flow"])
    value = last["value"] + np.cumsum(rng.normal(0, 0.03, rows))
    push = 0.15 * flow + rng.normal(0, 0.5, rows) * np.exp(vix)
    away = wander(push, 1 - 1 / 150, last["away"])
    last.update(time=time[-1], vix=vix[-1], flow=flow[-1], value=value[-1], away=away[-1])
    price = np.rint(20_000 + value + away) * TICK_SIZE
    size = 1 + rng.poisson(9 * np.exp(-((away / 3) ** 2) / 2))
    side = np.where(rng.random(rows) < 1 / (1 + np.exp(-flow)), 1, -1)
    return OPENING + time.astype(np.int64), price, size, side, 18 * np.exp(vix)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("ticks.csv"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--preset", choices=PRESETS, help="instead of --rows")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.rows = PRESETS.get(args.preset, args.rows)
    rng = np.random.default_rng(args.seed)
    last = {"time": 0.0, "vix": 0.0, "flow": 0.0, "value": 0.0, "away": 0.0}
    part = args.output.with_name(args.output.name + ".part")
    with part.open("w", encoding="ascii", newline="\n") as file:
        file.write("time,price,size,side,vix\n")
        for number in range(math.ceil(args.rows / CHUNK)):
            columns = make_chunk(rng, min(CHUNK, args.rows - number * CHUNK), last)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            file.writelines(map("%d,%.2f,%d,%d,%.2f\n".__mod__, rows))
    part.replace(args.output)
    print(f"{args.output}: {args.rows} rows, {args.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
