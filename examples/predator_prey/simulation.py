"""Predators hunt prey on a square field without borders. Plain Python, one animal at a time."""

import math

import numpy as np

# Stand still, or go one of eight ways.
MOVES = [(0.0, 0.0)] + [(math.cos(k * math.pi / 4), math.sin(k * math.pi / 4)) for k in range(8)]
SIZE = 30.0  # of the field; a move is 1 long
REACH = 1.0  # a predator this near to a prey catches it
NEIGHBOURS = 3  # of each kind that an animal sees
OWN_FEATURES = 3
SEEN_FEATURES = 6


class Animal:
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.dx, self.dy = 0.0, 0.0  # the last move
        self.alive = True


class Simulation:
    def __init__(self, seed, prey, predators):
        random = np.random.default_rng(seed)
        self.prey = [Animal(*random.uniform(0, SIZE, 2)) for _ in range(prey)]
        self.predators = [Animal(*random.uniform(0, SIZE, 2)) for _ in range(predators)]

    def alive(self):
        return [prey.alive for prey in self.prey]

    def share_caught(self):
        return 1 - sum(self.alive()) / len(self.prey)

    def look(self, animals):
        """Return what each animal knows of itself and sees of its nearest neighbours."""
        own = np.zeros((len(animals), OWN_FEATURES), dtype=np.float32)
        seen = np.zeros((len(animals), 2 * NEIGHBOURS, SEEN_FEATURES), dtype=np.float32)
        for i, animal in enumerate(animals):
            own[i] = animal.dx, animal.dy, self.share_caught()
            # Prey stand in the first rows and columns of what is seen, predators in the last.
            for first, kind in ((0, self.prey), (NEIGHBOURS, self.predators)):
                others = [other for other in kind if other.alive and other is not animal]
                ways = sorted(way(animal, other) for other in others)
                for j, (distance, x, y) in enumerate(ways[:NEIGHBOURS]):
                    near = 5 / (5 + distance)
                    seen[i, first + j, first : first + 3] = x * near, y * near, near
        return own, seen

    def step(self, prey_actions, predator_actions):
        """Move everybody; return the rewards of the prey and of the predators."""
        prey_before = [nearest(prey, self.predators) for prey in self.prey]
        predators_before = [nearest(predator, self.prey) for predator in self.predators]
        move(self.prey, prey_actions)
        move(self.predators, predator_actions)

        # Coming nearer is good for a predator, and bad for a prey.
        prey_after = [nearest(prey, self.predators) for prey in self.prey]
        predators_after = [nearest(predator, self.prey) for predator in self.predators]
        prey_rewards = np.subtract(prey_after, prey_before)
        predator_rewards = np.subtract(predators_before, predators_after)
        for i, prey in enumerate(self.prey):
            for j, predator in enumerate(self.predators):
                if prey.alive and way(prey, predator)[0] < REACH:
                    prey.alive = False
                    prey_rewards[i] = -3.0
                    predator_rewards[j] = 3.0
        return prey_rewards, predator_rewards

    def hunt(self):
        """Actions of predators that run at the nearest prey: a plain rule, nothing learnt."""
        actions = []
        for predator in self.predators:
            _, x, y = min(way(predator, prey) for prey in self.prey if prey.alive)
            actions.append(1 + round(math.atan2(y, x) / (math.pi / 4)) % 8)
        return actions


def way(animal, other):
    """Distance to another animal, and the direction, the short way round."""
    dx = (other.x - animal.x + SIZE / 2) % SIZE - SIZE / 2
    dy = (other.y - animal.y + SIZE / 2) % SIZE - SIZE / 2
    distance = math.hypot(dx, dy)
    return distance, dx / (distance + 1e-6), dy / (distance + 1e-6)


def nearest(animal, others):
    """Distance to the nearest of the others that live."""
    return min((way(animal, other)[0] for other in others if other.alive), default=SIZE)


def move(animals, actions):
    for animal, action in zip(animals, actions, strict=True):
        animal.dx, animal.dy = MOVES[action]
        animal.x = (animal.x + animal.dx) % SIZE
        animal.y = (animal.y + animal.dy) % SIZE
