"""Train in processes that know nothing of each other, and average their weights after each round.

What note D calls manual distributed training: each process has every n-th batch, one GPU and one
file. python average.py --processes 2 --rounds 3. A round is an epoch of one fold.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import torch
from evaluate import load


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("averaged"))
    args, more = parser.parse_known_args()
    start = args.output / "model.pt"
    begin = []
    for number in range(1, args.rounds + 1):
        outputs = [args.output / f"part-{part}" for part in range(args.processes)]
        children = []
        for part, output in enumerate(outputs):
            words = [sys.executable, "train.py", "--folds", "1", "--epochs", "1", *begin, *more]
            words += ["--shard", f"{part}/{args.processes}", "--output", str(output)]
            seen = {"HIP_VISIBLE_DEVICES": str(part)} if torch.cuda.device_count() > 1 else {}
            children.append(subprocess.Popen(words, env={**os.environ, **seen}))
        codes = [child.wait() for child in children]
        if any(codes):
            raise SystemExit("a process failed; its output is above")
        states = [load(output)[0].state_dict() for output in outputs]
        mean = {name: sum(state[name] for state in states) / len(states) for name in states[0]}
        torch.save(mean, start)
        begin = ["--start", str(start)]
        print(f"round {number}/{args.rounds}: weights of {len(states)} processes averaged")
    print(f"done: {start}")


if __name__ == "__main__":
    main()
