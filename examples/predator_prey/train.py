"""Predators learn to hunt and prey learn to flee: an actor-critic with attention."""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from evaluate import measure
from network import build, choose
from simulation import Simulation
from torch import nn

PRESETS = {
    "small": {
        "embedding": 64,
        "heads": 4,
        "hidden": 128,
        "episodes": 70,
        "learning_rate": 3e-3,
        "held_out_episodes": 6,
    },
    "note": {  # an episode of half a minute in plain Python alone
        "prey": 60,
        "predators": 30,
        "episode_length": 500,
        "episodes": 1000,
        "accumulate": 4,
        "checkpoint_every": 1,
        "held_out_episodes": 2,
    },
}
CURVE_POINTS = 200


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, help="sizes; each can still be given")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    parser.add_argument("--checkpoint_every", type=int, default=10, help="episodes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--embedding", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--accumulate", type=int, default=1, help="parts of a batch, for memory")
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--held_out_episodes", type=int, default=10)
    parser.add_argument("--episode_length", type=int, default=20)
    parser.add_argument("--prey", type=int, default=12)
    parser.add_argument("--predators", type=int, default=8)
    parser.add_argument("--worlds", type=int, default=1, help="simulations that advance together")
    parser.add_argument("--single", action="store_true", help="a forward pass for each animal")
    parser.set_defaults(**PRESETS.get(parser.parse_known_args()[0].preset, {}))
    return parser.parse_args()


def play(networks, seed, arguments, seconds):
    """Play an episode of each world; return what each kind saw, did and gained, and its share.

    All worlds advance together, so that a forward pass has the animals of all.
    """
    started = time.perf_counter()
    acting = 0.0
    sizes = arguments.prey, arguments.predators
    worlds = [Simulation([*seed, n][: 2 + (n > 0)], *sizes) for n in range(arguments.worlds)]
    memory = {
        kind: {name: [] for name in ("own", "seen", "action", "reward", "alive")}
        for kind in ("prey", "predators")
    }
    moment = 0
    while moment < arguments.episode_length and any(any(world.alive()) for world in worlds):
        moment += 1
        for kind, kept in memory.items():
            looks = [world.look(getattr(world, kind)) for world in worlds]
            own, seen = map(np.concatenate, zip(*looks, strict=True))
            began = time.perf_counter()
            actions = choose(networks[kind], own, seen, arguments.device, arguments.single)
            acting += time.perf_counter() - began
            for name, value in (("own", own), ("seen", seen), ("action", actions)):
                kept[name].append(value)
        memory["prey"]["alive"].append(np.concatenate([world.alive() for world in worlds]))
        hunting = [any(world.alive()) for world in worlds]
        memory["predators"]["alive"].append(np.repeat(hunting, arguments.predators))
        actions = [np.split(np.array(kept["action"][-1]), len(worlds)) for kept in memory.values()]
        moves = zip(*actions, strict=True)
        rewards = [world.step(*both) for world, both in zip(worlds, moves, strict=True)]
        for kept, gained in zip(memory.values(), zip(*rewards, strict=True), strict=True):
            kept["reward"].append(np.concatenate(gained))
    seconds["acting"] += acting
    seconds["simulation"] += time.perf_counter() - started - acting
    return memory, float(np.mean([world.share_caught() for world in worlds]))


def make_batch(memory, device, discount=0.3):
    """Make one row of each moment that each animal lived: own, seen, action, return."""
    rewards = np.array(memory["reward"], dtype=np.float32)
    alive = np.array(memory["alive"])
    returns = np.zeros_like(rewards)
    later = 0.0
    for t in reversed(range(len(rewards))):
        later = returns[t] = (rewards[t] + discount * later) * alive[t]
    actions = np.array(memory["action"], dtype=np.int64)
    columns = np.array(memory["own"]), np.array(memory["seen"]), actions, returns
    return [torch.from_numpy(column[alive]).to(device) for column in columns]


def learn(networks, optimizer, memory, arguments):
    """Take one optimizer step on an episode. More parts need less memory for the same step."""
    optimizer.zero_grad()
    total = 0.0
    for kind, network in networks.items():
        batch = make_batch(memory[kind], arguments.device)
        rows, spread = len(batch[3]), batch[3].std(correction=0) + 1e-6
        parts = [column.chunk(arguments.accumulate) for column in batch]
        for own, seen, action, returns in zip(*parts, strict=True):
            logits, value = network(own, seen)
            log_chances = logits.log_softmax(1)
            chosen = log_chances.gather(1, action.unsqueeze(1)).squeeze(1)
            actor = -(chosen * (returns - value.detach()) / spread).sum()
            critic = (returns - value).square().sum()
            entropy = -(log_chances.exp() * log_chances).sum()
            loss = (actor + 0.5 * critic - 0.1 * entropy) / rows
            loss.backward()
            total += loss.item()
    nn.utils.clip_grad_norm_(networks.parameters(), 1.0)
    optimizer.step()
    return total


def save(path, content):
    """Write a file whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    if path.suffix == ".json":
        temporary.write_text(json.dumps(content, indent=2) + "\n")
    else:
        torch.save(content, temporary)
    temporary.replace(path)


def save_checkpoint(folder, networks, optimizer, episode, **progress):
    checkpoint = {
        "episode": episode,
        "networks": networks.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),  # the only one in use: a simulation has its own seed
        **progress,
    }
    save(folder / f"step-{episode:06d}.pt", checkpoint)
    for old in sorted(folder.glob("step-*.pt"))[:-3]:
        old.unlink()


def say(text):
    """Print a line with the time of day, as every line of the log has it."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


def in_words(seconds):
    return " ".join(f"{name} {spent:.1f} s" for name, spent in seconds.items())


def main():
    arguments = read_arguments()
    torch.manual_seed(arguments.seed)
    networks = build(arguments.embedding, arguments.heads, arguments.hidden)
    networks.to(arguments.device)
    optimizer = torch.optim.Adam(networks.parameters(), lr=arguments.learning_rate)
    parameters = sum(parameter.numel() for parameter in networks.parameters())
    seconds = {"simulation": 0.0, "acting": 0.0, "learning": 0.0}
    done, curve = 0, []
    if arguments.resume:
        saved = torch.load(arguments.resume, map_location="cpu", weights_only=True)
        networks.load_state_dict(saved["networks"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"])
        done, seconds, curve = saved["episode"], saved["seconds"], saved["curve"]
    say(f"{parameters:,} parameters on {arguments.device}; {done} episodes done")

    told = time.perf_counter()
    for episode in range(done + 1, arguments.episodes + 1):
        memory, caught = play(networks, [arguments.seed, episode], arguments, seconds)
        began = time.perf_counter()
        loss = learn(networks, optimizer, memory, arguments)
        seconds["learning"] += time.perf_counter() - began
        if time.perf_counter() - told > 2 or episode == arguments.episodes:
            told = time.perf_counter()
            say(
                f"episode {episode}/{arguments.episodes} "
                f"loss {loss:.3f} caught {caught:.0%}, {in_words(seconds)}"
            )
        if episode % math.ceil(arguments.episodes / CURVE_POINTS) == 0:
            curve.append({"episode": episode, "loss": loss, "caught": caught})
        if episode % arguments.checkpoint_every == 0:
            folder = arguments.output / "checkpoints"
            save_checkpoint(folder, networks, optimizer, episode, seconds=seconds, curve=curve)

    simulating = seconds["simulation"] / (sum(seconds.values()) or 1)
    say(
        f"{in_words(seconds)}: {simulating:.0%} of it on one CPU core, with nothing for a GPU"
        f" to do: GPU use cannot exceed {1 - simulating:.0%}"
    )
    result = measure(networks, arguments)
    save(arguments.output / "model.pt", networks.state_dict())
    metadata = {
        "parameters": parameters,
        "steps": arguments.episodes,
        "arguments": {
            name: str(value) if isinstance(value, Path) else value
            for name, value in vars(arguments).items()
        },
        "seconds": seconds,
        "simulation_share": simulating,
        "measure": result,
        "curve": curve,
    }
    save(arguments.output / "metadata.json", metadata)
    say(
        f"done: {result['name']} {result['value']:.3f} on held-out data; "
        f"trivial baseline {result['baseline']:.3f}"
    )


if __name__ == "__main__":
    main()
