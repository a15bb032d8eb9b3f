"""The actor-critic with attention: one network for each kind of animal."""

import torch
from simulation import MOVES, OWN_FEATURES, SEEN_FEATURES
from torch import nn


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
def choose(network, own, seen, device, single=None):
    """Choose the actions of all animals of a kind: in one forward pass, or in one for each."""
    rows = torch.from_numpy(own).to(device), torch.from_numpy(seen).to(device)
    parts = zip(*(column.split(1) for column in rows), strict=True) if single else [rows]
    logits = torch.cat([network(*part)[0] for part in parts])
    return torch.multinomial(logits.softmax(1).cpu(), 1).squeeze(1).tolist()


def build(embedding, heads, hidden):
    sizes = embedding, heads, hidden
    return nn.ModuleDict({"prey": ActorCritic(*sizes), "predators": ActorCritic(*sizes)})
