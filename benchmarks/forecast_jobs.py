"""Fourteen training jobs of different kinds, for benchmarks/forecast.py. Needs torch.

    python benchmarks/forecast_jobs.py NAME --steps 1000 [--resume CHECKPOINT]
    python benchmarks/forecast_jobs.py NAME --time 8        print its steps a second, and no more

Plain scripts in one file: one thread, seeded, nothing from rocsteady. Each saves a checkpoint SAVES
times. One crashes and one hangs about half-way, once: a file in the folder says that it was so. Two
crash again and again, one after so many steps of each process and one at random.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import multiprocessing
import random
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import count, islice, pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

SAVES = 20  # checkpoints in the whole job
KEPT = 2  # of them at a time
SKIPPED = 3  # first steps, when it is timed
CRASHES = 7  # of a job that crashes often, about
TELL_EVERY = 2.0  # seconds
EPOCH, HELD_OUT = 150, 40  # steps from one validation to the next, and batches in it
Batch = tuple[torch.Tensor, ...]
Batches = Callable[[int], Iterator[Batch]]  # endless, from a step on


class Work(NamedTuple):
    """What there is to train."""

    model: nn.Module
    loss: Callable[[Batch], torch.Tensor]
    batches: Batches
    after: Callable[[int], None] = lambda _step: None  # each step


class Samples(Dataset):  # type: ignore[misc]  # torch has no types here
    """Samples without an end, the same for the same index."""

    def __init__(self, make: Callable[[int], Batch], first: int) -> None:
        self.make, self.first = make, first

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> Batch:
        return self.make(self.first + index)


def loaded(make: Callable[[int], Batch], size: int, *, workers: int = 0) -> Batches:
    """Return batches that a loader makes of samples."""
    return lambda step: iter(DataLoader(Samples(make, step * size), size, num_workers=workers))


def made(make: Callable[[int], Batch]) -> Batches:
    """Return batches that are made as they are, without a loader."""
    return lambda step: map(make, count(step))


def seeded(index: int) -> torch.Generator:
    """Return a source of random numbers of its own for an index."""
    return torch.Generator().manual_seed(index)


def layers(*sizes: int) -> nn.Sequential:
    """Return a plain network."""
    parts = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.GELU())]
    return nn.Sequential(*parts[:-1])


def convolutions(width: int, kinds: int) -> nn.Sequential:
    """Return a net for small images."""
    first, second = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, padding=1)
    body = (first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.AdaptiveAvgPool2d(4))
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(32 * width, kinds))


def image(index: int, side: int = 32) -> Batch:
    """Return a noisy grating, and which of eight ways it runs."""
    ramp, angle = torch.linspace(0, 12, side), index % 8 * math.pi / 8
    waves = torch.sin(ramp[:, None] * math.cos(angle) + ramp * math.sin(angle))
    return waves + torch.randn(3, side, side, generator=seeded(index)), torch.tensor(index % 8)


def tells(model: nn.Module) -> Callable[[Batch], torch.Tensor]:
    """Return the loss of a model that tells kinds apart."""
    return lambda batch: functional.cross_entropy(model(batch[0]), batch[1])


def mlp(_steps: int) -> Work:
    """Train on a table of random numbers."""
    rows = torch.randn(20_000, 64, generator=seeded(0))
    answers = (rows @ torch.randn(64, 10, generator=seeded(1))).argmax(1)
    model = layers(64, 512, 512, 10)

    def batch(step: int) -> Batch:
        chosen = torch.randint(len(rows), (512,), generator=seeded(step))
        return rows[chosen], answers[chosen]

    return Work(model, tells(model), made(batch))


class Speaker(nn.Module):  # type: ignore[misc]
    """A small transformer that says which letter comes next."""

    def __init__(self, letters: int, width: int = 96, length: int = 64) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Parameter(torch.randn(length, width, generator=seeded(0)) * 0.02)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 2)
        self.mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.out = nn.Linear(width, letters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the scores of the letters, in front for the loss, at each place."""
        mixed = self.blocks(self.letters(text) + self.places, mask=self.mask, is_causal=True)
        return self.out(mixed).transpose(1, 2)


def language(_steps: int) -> Work:
    """Train a language model on a text made by a Markov chain."""
    chances = torch.rand(40, 40, generator=seeded(0)) ** 8
    drawn = torch.multinomial(chances, 50_000, replacement=True, generator=seeded(1)).tolist()
    letters = [0]
    for place in range(len(drawn[0]) - 1):
        letters.append(drawn[letters[-1]][place])
    text, model = torch.tensor(letters), Speaker(40)

    def batch(step: int) -> Batch:
        starts = torch.randint(len(text) - 65, (12, 1), generator=seeded(step))
        cut = text[starts + torch.arange(65)]
        return cut[:, :-1], cut[:, 1:]

    return Work(model, tells(model), made(batch))


def convolution(_steps: int) -> Work:
    """Train on images that the training process makes itself."""
    model = convolutions(16, 8)
    return Work(model, tells(model), loaded(image, 48))


def lstm(_steps: int) -> Work:
    """Train a recurrent net to go on with a sum of two waves."""
    model = nn.ModuleDict({"lstm": nn.LSTM(1, 96, batch_first=True), "out": nn.Linear(96, 1)})

    def wave(index: int) -> Batch:
        low, high = torch.rand(2, generator=seeded(index)).tolist()
        moments = torch.arange(81) / 10
        values = torch.sin((1 + low) * moments) + torch.sin((2 + 3 * high) * moments)
        return values[:-1, None], values[1:, None]

    def loss(batch: Batch) -> torch.Tensor:
        return functional.mse_loss(model["out"](model["lstm"](batch[0])[0]), batch[1])

    return Work(model, loss, loaded(wave, 32))


def chase(model: nn.Module, dice: random.Random) -> Batch:
    """Let hunters run after their prey in plain Python; return what they saw, did and gained."""
    hunters = [[dice.uniform(-5, 5), dice.uniform(-5, 5)] for _ in range(24)]
    prey, moments = [dice.uniform(-5, 5), dice.uniform(-5, 5)], []
    for _ in range(20):
        seen = torch.tensor([[prey[0] - x, prey[1] - y] for x, y in hunters])
        with torch.no_grad():
            done = torch.multinomial(model(seen)[:, :8].softmax(1), 1).squeeze(1)
        before = torch.tensor([math.dist(hunter, prey) for hunter in hunters])
        for hunter, way in zip(hunters, done.tolist(), strict=True):
            hunter[0] += 0.5 * math.cos(way * math.pi / 4)
            hunter[1] += 0.5 * math.sin(way * math.pi / 4)
        prey = [prey[0] + dice.gauss(0, 0.2), prey[1] + dice.gauss(0, 0.2)]
        after = torch.tensor([math.dist(hunter, prey) for hunter in hunters])
        moments.append((seen, done, before - after))
    return tuple(torch.cat(parts) for parts in zip(*moments, strict=True))


def actor_critic(_steps: int) -> Work:
    """Learn from a simulation that runs in Python, one episode a step."""
    model = layers(2, 128, 128, 9)  # eight ways to go, and the gain that is expected

    def loss(batch: Batch) -> torch.Tensor:
        seen, done, gained = batch
        out = model(seen)
        chosen = out[:, :8].log_softmax(1).gather(1, done[:, None]).squeeze(1)
        better = gained - out[:, 8]
        return (better.square() - chosen * better.detach()).mean()

    return Work(model, loss, made(lambda step: chase(model, random.Random(step))))  # noqa: S311 - a simulation


def contrastive(_steps: int) -> Work:
    """Learn to know two noisy views of one image again."""
    model = convolutions(12, 32)

    def views(index: int) -> Batch:
        clean, _ = image(index)
        noise = torch.randn(2, *clean.shape, generator=seeded(index + 1))
        return clean + noise[0], clean + noise[1]

    def loss(batch: Batch) -> torch.Tensor:
        one, two = (functional.normalize(model(view), dim=1) for view in batch)
        return functional.cross_entropy(10 * one @ two.T, torch.arange(len(one)))

    return Work(model, loss, loaded(views, 32))


def two_workers(_steps: int) -> Work:
    """Train on images from two loader processes."""
    model = convolutions(16, 8)
    return Work(model, tells(model), loaded(image, 48, workers=2))


def slow_loading(_steps: int) -> Work:
    """Train a small model on records that take long to unpack."""
    numbers = torch.randint(32, (8, 400_000), generator=seeded(0), dtype=torch.uint8)
    packed = [zlib.compress(bytes(row.tolist()), 6) for row in numbers]
    model = layers(256, 64, 8)

    def record(index: int) -> Batch:
        flat = torch.frombuffer(bytearray(zlib.decompress(packed[index % 8])), dtype=torch.uint8)
        start = index * 977 % 399_000
        return flat[start : start + 256].float(), torch.tensor(index % 8)

    return Work(model, tells(model), loaded(record, 8))


def validation(_steps: int) -> Work:
    """Train in short epochs, and look at held-out images after each."""
    model = convolutions(16, 8)
    batches = loaded(image, 32)

    def after(step: int) -> None:
        if step % EPOCH:
            return
        with torch.no_grad():
            losses = [tells(model)(batch) for batch in islice(batches(10**7), HELD_OUT)]
        print(f"epoch {step // EPOCH} held-out loss {torch.stack(losses).mean():.4f}", flush=True)

    return Work(model, tells(model), batches, after)


def large_checkpoints(_steps: int) -> Work:
    """Train a model whose checkpoints are of 100 MB."""
    words = nn.EmbeddingBag(60_000, 128)
    model = nn.Sequential(words, layers(128, 512, 8))

    def batch(step: int) -> Batch:
        seen = torch.randint(60_000, (256, 32), generator=seeded(step))
        return seen, seen[:, 0] % 8

    return Work(model, tells(model), made(batch))


def half_way(steps: int) -> int:
    """Return a step in the middle between two checkpoints, so that what is lost is the average."""
    return round(steps * (SAVES / 2 + 0.5) / SAVES)


def is_first(name: str) -> bool:
    """Tell whether it is the first time in this folder."""
    first = not Path(name).exists()
    Path(name).touch()
    return first


def crashes_once(steps: int) -> Work:
    """Read from address 0 half-way."""

    def after(step: int) -> None:
        if step == half_way(steps) and is_first("crashed"):
            ctypes.string_at(0)

    return mlp(steps)._replace(after=after)


def crashes_again(steps: int) -> Work:
    """Crash after the same number of steps of each process, as a leak does."""
    made = count(1)

    def after(_step: int) -> None:
        if next(made) > steps / CRASHES:
            ctypes.string_at(0)

    return mlp(steps)._replace(after=after)


def crashes_at_random(steps: int) -> Work:
    """Crash at any step, another one each time."""
    dice = random.SystemRandom()

    def after(_step: int) -> None:
        if dice.random() < CRASHES / steps:
            ctypes.string_at(0)

    return language(steps)._replace(after=after)


def hangs_once(steps: int) -> Work:
    """Let a loader process wait half-way for a lock that nobody gives back."""
    lock, size = multiprocessing.Lock(), 48

    def stuck(index: int) -> Batch:
        if index == half_way(steps) * size and is_first("hung"):
            lock.acquire()
            lock.acquire()
        return image(index)

    return two_workers(steps)._replace(batches=loaded(stuck, size, workers=2))


JOBS: dict[str, Callable[[int], Work]] = {
    "mlp": mlp,
    "language": language,
    "convolution": convolution,
    "lstm": lstm,
    "actor-critic": actor_critic,
    "contrastive": contrastive,
    "two-workers": two_workers,
    "slow-loading": slow_loading,
    "validation": validation,
    "large-checkpoints": large_checkpoints,
    "crashes-once": crashes_once,
    "hangs-once": hangs_once,
    "crashes-again": crashes_again,
    "crashes-at-random": crashes_at_random,
}


def save(step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint whole or not at all, and remove old ones."""
    folder = Path("checkpoints")
    folder.mkdir(exist_ok=True)
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, folder / "part")
    (folder / "part").replace(folder / f"step-{step:08}.pt")
    for old in sorted(folder.glob("step-*.pt"))[:-KEPT]:
        old.unlink()


def train(work: Work, steps: int, resume: str | None) -> None:
    """Train to the end, from the beginning or from a checkpoint."""
    optimizer, first, told = torch.optim.AdamW(work.model.parameters()), 0, 0.0
    if resume:
        kept = torch.load(resume, weights_only=True)
        work.model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
    for step, batch in enumerate(islice(work.batches(first), steps - first), first + 1):
        loss = one_step(work, optimizer, batch)
        work.after(step)
        if time.monotonic() - told > TELL_EVERY or step == steps:
            told = time.monotonic()
            print(f"step {step}/{steps} loss {loss:.4f}", flush=True)
        if step % max(1, steps // SAVES) == 0:
            save(step, work.model, optimizer)
    torch.save(work.model.state_dict(), "model.pt")


def one_step(work: Work, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """Take one step, and return the loss."""
    optimizer.zero_grad()
    loss = work.loss(batch)
    loss.backward()
    optimizer.step()
    return float(loss.item())


def steps_a_second(work: Work, seconds: float) -> float:
    """Train for a while, without checkpoints; return how fast that was."""
    optimizer, began = torch.optim.AdamW(work.model.parameters()), time.monotonic()
    for step, batch in enumerate(work.batches(0), 1):
        one_step(work, optimizer, batch)
        work.after(step)
        if step == SKIPPED:
            began = time.monotonic()
        passed = time.monotonic() - began
        if step > SKIPPED and passed > seconds:
            return (step - SKIPPED) / passed
    raise AssertionError("batches do not end")


def main() -> None:
    """Train one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=JOBS)
    parser.add_argument("--steps", type=int, default=10**8)
    parser.add_argument("--resume")
    parser.add_argument("--time", type=float)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # else the perceptron slows down as it learns
    work = JOBS[given.name](given.steps)
    if given.time is not None:
        print(steps_a_second(work, given.time))
    else:
        train(work, given.steps, given.resume)


if __name__ == "__main__":
    main()
