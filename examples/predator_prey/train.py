"""Predators learn to hunt and prey learn to flee: an actor-critic with attention."""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from simulation import MOVES, OWN_FEATURES, SEEN_FEATURES, Simulation
from torch import nn

HELD_OUT_SEED = 1_000_000  # of the episodes that are only measured on
MARGIN = 0.3


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
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
    return parser.parse_args()


def two_layers(features, hidden, outputs):
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Block(nn.Module):
    """An animal attends to what it sees, then thinks about it."""

    def __init__(self, embedding, heads, hidden):
        super().__init__()
        self.before_attention = nn.LayerNorm(embedding)
        self.attention = nn.MultiheadAttention(embedding, heads, batch_first=True)
        self.before_thought = nn.LayerNorm(embedding)
        self.thought = two_layers(embedding, hidden, embedding)

    def forward(self, animal, seen):
        query = self.before_attention(animal)
        animal = animal + self.attention(query, seen, seen, need_weights=False)[0]
        return animal + self.thought(self.before_thought(animal))


class ActorCritic(nn.Module):
    """For each animal of a batch: the logits of its actions, and what it expects to gain."""

    def __init__(self, embedding, heads, hidden):
        super().__init__()
        self.own = two_layers(OWN_FEATURES, embedding, embedding)
        self.seen = two_layers(SEEN_FEATURES, embedding, embedding)
        self.blocks = nn.ModuleList(Block(embedding, heads, hidden) for _ in range(2))
        self.actor = two_layers(embedding, hidden, len(MOVES))
        self.critic = two_layers(embedding, hidden, 1)

    def forward(self, own, seen):
        animal = self.own(own).unsqueeze(1)
        seen = self.seen(seen)
        for block in self.blocks:
            animal = block(animal, seen)
        animal = animal.squeeze(1)
        return self.actor(animal), self.critic(animal).squeeze(1)


@torch.no_grad()
def choose(network, own, seen, device):
    """Choose the actions of all animals of a kind in one forward pass."""
    logits, _ = network(torch.from_numpy(own).to(device), torch.from_numpy(seen).to(device))
    return torch.multinomial(logits.softmax(1).cpu(), 1).squeeze(1).tolist()


def play(networks, seed, arguments, seconds):
    """Play an episode; return what each kind saw, did and gained, and the share of prey caught."""
    started = time.perf_counter()
    acting = 0.0
    world = Simulation(seed, arguments.prey, arguments.predators)
    kinds = {"prey": world.prey, "predators": world.predators}
    memory = {kind: {"own": [], "seen": [], "action": [], "reward": []} for kind in kinds}
    alive = []
    while len(alive) < arguments.episode_length and any(world.alive()):
        alive.append(world.alive())
        for kind, animals in kinds.items():
            own, seen = world.look(animals)
            began = time.perf_counter()
            actions = choose(networks[kind], own, seen, arguments.device)
            acting += time.perf_counter() - began
            memory[kind]["own"].append(own)
            memory[kind]["seen"].append(seen)
            memory[kind]["action"].append(actions)
        rewards = world.step(memory["prey"]["action"][-1], memory["predators"]["action"][-1])
        memory["prey"]["reward"].append(rewards[0])
        memory["predators"]["reward"].append(rewards[1])
    memory["prey"]["alive"] = alive
    memory["predators"]["alive"] = [[True] * arguments.predators] * len(alive)
    seconds["acting"] += acting
    seconds["simulation"] += time.perf_counter() - started - acting
    return memory, world.share_caught()


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


def save(path, content):
    """Write a file whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    if path.suffix == ".json":
        temporary.write_text(json.dumps(content, indent=2) + "\n")
    else:
        torch.save(content, temporary)
    temporary.replace(path)


def save_checkpoint(folder, episode, networks, optimizer, seconds):
    checkpoint = {
        "episode": episode,
        "networks": networks.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),  # the only one in use: a simulation has its own seed
        "seconds": seconds,
    }
    save(folder / f"step-{episode:06d}.pt", checkpoint)
    for old in sorted(folder.glob("step-*.pt"))[:-3]:
        old.unlink()


def in_words(seconds):
    return " ".join(f"{name} {spent:.1f} s" for name, spent in seconds.items())


def main():
    arguments = read_arguments()
    torch.manual_seed(arguments.seed)
    sizes = arguments.embedding, arguments.heads, arguments.hidden
    networks = nn.ModuleDict({"prey": ActorCritic(*sizes), "predators": ActorCritic(*sizes)})
    networks.to(arguments.device)
    optimizer = torch.optim.Adam(networks.parameters(), lr=arguments.learning_rate)
    parameters = sum(parameter.numel() for parameter in networks.parameters())
    seconds = {"simulation": 0.0, "acting": 0.0, "learning": 0.0}
    done = 0
    if arguments.resume:
        saved = torch.load(arguments.resume, map_location="cpu", weights_only=True)
        networks.load_state_dict(saved["networks"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"])
        done, seconds = saved["episode"], saved["seconds"]
    print(f"{parameters:,} parameters on {arguments.device}; {done} episodes done", flush=True)

    told = time.perf_counter()
    for episode in range(done + 1, arguments.episodes + 1):
        memory, caught = play(networks, [arguments.seed, episode], arguments, seconds)
        began = time.perf_counter()
        loss = learn(networks, optimizer, memory, arguments)
        seconds["learning"] += time.perf_counter() - began
        if time.perf_counter() - told > 2 or episode == arguments.episodes:
            told = time.perf_counter()
            print(
                f"{time.strftime('%H:%M:%S')} episode {episode}/{arguments.episodes} "
                f"loss {loss:.3f} caught {caught:.0%}, {in_words(seconds)}",
                flush=True,
            )
        if episode % arguments.checkpoint_every == 0:
            folder = arguments.output / "checkpoints"
            save_checkpoint(folder, episode, networks, optimizer, seconds)

    simulating = seconds["simulation"] / (sum(seconds.values()) or 1)
    print(
        f"{in_words(seconds)}: {simulating:.0%} of it on one CPU core, with nothing for a GPU to do"
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
    }
    save(arguments.output / "metadata.json", metadata)
    print(
        f"done: {result['name']} {result['value']:.3f} on held-out data; "
        f"trivial baseline {result['baseline']:.3f}"
    )


if __name__ == "__main__":
    main()
