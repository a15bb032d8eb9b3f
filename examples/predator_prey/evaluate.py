"""Measure trained networks on held-out episodes: python evaluate.py [--output output]."""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from network import build, choose
from simulation import MOVES, Simulation

HELD_OUT_SEED = 1_000_000  # of the episodes that are only measured on
MARGIN = 0.3


def mean_caught(prey_policy, predator_policy, arguments):
    """Play the held-out episodes; return the mean share of prey caught."""
    torch.manual_seed(HELD_OUT_SEED)
    shares = []
    for episode in range(arguments.held_out_episodes):
        world = Simulation(HELD_OUT_SEED + episode, arguments.prey, arguments.predators)
        for _ in range(arguments.episode_length):
            if any(world.alive()):
                world.step(prey_policy(world), predator_policy(world))
        shares.append(world.share_caught())
    return float(np.mean(shares))


def measure(networks, arguments):
    """Measure each kind against an opponent that does not learn, and so does not change."""

    def random_prey(_world):
        return torch.randint(len(MOVES), (arguments.prey,)).tolist()

    def random_predators(_world):
        return torch.randint(len(MOVES), (arguments.predators,)).tolist()

    def trained_prey(world):
        return choose(networks["prey"], *world.look(world.prey), arguments.device)

    def trained_predators(world):
        return choose(networks["predators"], *world.look(world.predators), arguments.device)

    caught = mean_caught(random_prey, trained_predators, arguments)
    escaped = 1 - mean_caught(trained_prey, Simulation.hunt, arguments)
    caught_at_random = mean_caught(random_prey, random_predators, arguments)
    escaped_at_random = 1 - mean_caught(random_prey, Simulation.hunt, arguments)
    print(f"predators catch {caught:.0%} of random prey; random ones {caught_at_random:.0%}")
    print(f"prey escape plain hunters {escaped:.0%}; random ones {escaped_at_random:.0%}")
    return {
        "name": "success rate",  # the mean of the two shares
        "value": (caught + escaped) / 2,
        "baseline": (caught_at_random + escaped_at_random) / 2,
        "baseline_is": "animals that move at random, on the same episodes",
        "margin": MARGIN,
        "higher_is_better": True,
        "caught_by_predators": caught,
        "escaped_as_prey": escaped,
    }


def load(output):
    """Return the trained networks of a folder, and the arguments that they were trained with."""
    metadata = json.loads((output / "metadata.json").read_text())
    arguments = SimpleNamespace(**{**metadata["arguments"], "device": "cpu"})
    networks = build(arguments.embedding, arguments.heads, arguments.hidden)
    networks.load_state_dict(torch.load(output / "model.pt", weights_only=True))
    return networks.eval(), arguments, metadata


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output"))
    output = parser.parse_args().output
    networks, arguments, metadata = load(output)
    found = measure(networks, arguments)
    print(f"success rate {found['value']:.3f}, baseline {found['baseline']:.3f}")
    try:
        from plots import draw
    except ImportError:
        print("no plots: pip install matplotlib")
    else:
        draw(output, metadata, found)
