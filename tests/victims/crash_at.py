"""Crashes after some steps: `crash_at.py [--at N] [--how raise|SEGV|KILL|ABRT|exit=3] [--once]`.

With `--once` it leaves a file, `crashed`, and the next run in the same folder ends well. A person
sees a traceback, or "Segmentation fault", and no more lines.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from knobs import STEPS
from ordinary import AFTERWARDS, make_loader, make_model, make_optimizer, train


def crash(how: str) -> None:
    if how == "raise":
        raise RuntimeError("shape '[8, 3]' is invalid for input of size 20")
    if how.startswith("exit="):
        sys.exit(int(how.removeprefix("exit=")))
    os.kill(os.getpid(), signal.Signals[f"SIG{how}"])


def main() -> None:
    parser = argparse.ArgumentParser(description="a training run that crashes")
    parser.add_argument("--at", type=int, default=STEPS)
    parser.add_argument("--how", default="raise")
    parser.add_argument("--once", action="store_true")
    args = parser.parse_args()
    model = make_model()
    optimizer = make_optimizer(model)
    step = train(model, optimizer, make_loader(args.at)) if args.at else 0
    if not (args.once and Path("crashed").exists()):
        if args.once:
            Path("crashed").touch()
        crash(args.how)
    train(model, optimizer, make_loader(AFTERWARDS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
