"""Trade the blocks that each fold was validated on, with costs: python evaluate.py.

The position after each bar is the side that the model of that fold names; it earns what the next
bar moves. **It says nothing about trading**: the data is made up.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from features import FEATURES, count_rows, read_rows
from model import build_model, walk_forward

NEXT_MOVE = 0  # the column of a bar's own move, in ticks


def load(output, name="model.pt"):
    metadata = json.loads((output / "metadata.json").read_text())
    model = build_model(metadata["arguments"]["hidden_layers"])
    model.load_state_dict(torch.load(output / name, weights_only=True, map_location="cpu"))
    return model.eval(), metadata


@torch.no_grad()
def trade(model, rows, cost, least):
    """Return what each bar earned, in ticks, and how often the position changed.

    It changes only if the model is surer than least: each change costs.
    """
    chance = model(torch.from_numpy(rows[:-1, :FEATURES])).softmax(1)[:, 1].numpy()
    position = np.zeros(len(chance))
    held = 0.0
    for bar, up in enumerate(chance):
        if abs(up - 0.5) > least:
            held = 1.0 if up > 0.5 else -1.0
        position[bar] = held
    changes = np.abs(np.diff(position, prepend=0.0))
    return position * rows[1:, NEXT_MOVE] - cost * changes, int((changes > 0).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--cost", type=float, default=0.25, help="ticks for each contract traded")
    parser.add_argument("--least", type=float, default=0.05, help="from 50 %% before it trades")
    args = parser.parse_args()
    _, metadata = load(args.output)
    table, given = args.output / "features.f32", metadata["arguments"]
    earned, trades = [], 0
    blocks = walk_forward(count_rows(table), int(given["folds"]), int(given["batch_size"]))
    for number, (_, start, stop) in enumerate(blocks, 1):
        model, _ = load(args.output, f"fold-{number}.pt")
        ticks, changes = trade(model, read_rows(table, start, stop), args.cost, args.least)
        earned.append(ticks)
        trades += changes
    curve = np.cumsum(np.concatenate(earned))
    result = {
        "ticks": float(curve[-1]),
        "trades": trades,
        "cost": args.cost,
        "largest_fall": float((np.maximum.accumulate(curve) - curve).max()),
        "accuracy": metadata["accuracy"],
        "latency_ms": metadata["latency_ms"],
    }
    (args.output / "backtest.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"accuracy {result['accuracy']:.4f}, latency {result['latency_ms']:.3f} ms")
    print(
        f"{result['ticks']:.0f} ticks after costs in {trades} trades over {len(curve)} bars; "
        f"largest fall {result['largest_fall']:.0f}"
    )
    try:
        from plots import draw  # noqa: PLC0415 - only this needs matplotlib
    except ImportError:
        print("no plots: pip install matplotlib")
    else:
        draw(args.output, metadata, curve)


if __name__ == "__main__":
    main()
