"""A burst of 200 fast steps, then a wait of 60 s for a simulator, as in reinforcement learning.

The trainer waits for a child that computes. A person sees 200 steps in a second, then a minute of
nothing, then 200 steps again.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.connection import Connection

import torch
from knobs import lasting
from ordinary import WIDTH, make_model, make_optimizer, train

STEPS_A_ROUND = 200


def play(trainer: Connection, rounds: int) -> None:
    """Play games of chance for a minute a round, in pure Python."""
    for _ in range(rounds):
        until, wins, games = time.monotonic() + lasting(60), 0, 1
        while time.monotonic() < until:
            wins += sum(random.random() for _ in range(100)) > 50
            games += 1
        trainer.send(wins / games)


def wait_for_games(simulator: Connection) -> float:
    return float(simulator.recv())


def main() -> None:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    simulator = multiprocessing.Process(target=play, args=(theirs, 1), daemon=True)
    simulator.start()
    theirs.close()
    model = make_model()
    optimizer = make_optimizer(model)
    batches = [(torch.randn(8, WIDTH), torch.zeros(8, dtype=torch.long))] * STEPS_A_ROUND
    step = train(model, optimizer, batches)
    print(f"wins {wait_for_games(ours):.3f}", flush=True)
    train(model, optimizer, batches, step)
    simulator.join()
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
