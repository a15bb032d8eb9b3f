"""Trains a small model, for heartbeat_cost.py; runs in the interpreter that has torch."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from time import perf_counter_ns as clock
from typing import Any

import torch
from torch.optim import optimizer as optim
from torch.utils.data import DataLoader, dataloader

SIZES = {2: (256, 4, 104, 1500), 20: (640, 5, 128, 300)}  # ms: width, layers, batch, steps
HOT = 2_000
ROUNDS = 20
TRIM = 0.002  # of the dearest steps, where another process was let in between


class Training:
    """A multi-layer perceptron fed by a DataLoader: an ordinary loop."""

    def __init__(self, milliseconds: int) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        width, layers, self.batch, self.steps = SIZES[milliseconds]
        parts = [torch.nn.Linear(width, width) for _ in range(layers)]
        self.model = torch.nn.Sequential(*parts)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5)
        self.data = torch.randn(self.batch * 50, width)
        self.batches = self._endless()

    def _endless(self) -> Any:  # noqa: ANN401 - torch has no types here
        while True:
            yield from DataLoader(
                self.data, batch_size=None, sampler=_Slices(self.data, self.batch)
            )

    def step(self) -> int:
        """Make one step and give its nanoseconds."""
        start = clock()
        batch = next(self.batches)
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        self.optimizer.step()
        return clock() - start


class _Slices:
    """Index a tensor by whole batches, so that loading costs next to nothing."""

    def __init__(self, data: Any, batch: int) -> None:  # noqa: ANN401 - torch has no types here
        self.slices = [slice(at, at + batch) for at in range(0, len(data), batch)]

    def __iter__(self) -> Any:  # noqa: ANN401 - torch has no types here
        return iter(self.slices)

    def __len__(self) -> int:
        return len(self.slices)


class Around:
    """The time that one of our functions adds before and after the original."""

    def __init__(self, ours: Callable[..., Any], original: Callable[..., Any]) -> None:
        self.ours, self.original = ours, original
        self.spent = 0
        self.inner = (0, 0)
        self.in_place = True  # else only what it takes to measure is called
        self.cell = _cell_of(ours, original)

    def timed(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any function
        """Stand where ours stood."""
        call = self.ours if self.in_place else self.inside
        start = clock()
        try:
            return call(*args, **kwargs)
        finally:
            end = clock()
            entered, left = self.inner
            self.spent += entered - start + end - left

    def inside(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any function
        """Stand where the original stood."""
        entered = clock()
        try:
            return self.original(*args, **kwargs)
        finally:
            self.inner = (entered, clock())


def _cell_of(ours: Any, original: Any) -> Any:  # noqa: ANN401 - functions, and a cell
    """Find where one of our functions, or one that it calls, keeps the original."""
    for cell in getattr(ours, "__closure__", None) or ():
        if cell.cell_contents is original:
            return cell
        if (found := _cell_of(cell.cell_contents, original)) is not None:
            return found
    return None


def account(training: Training) -> dict[str, Any]:
    """Time every hook in place, at every second step, and what measuring costs at the others."""
    hooks = (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks)  # noqa: SLF001
    bare = [hook for registered in hooks for hook in registered.values()]
    stepping = Stepping()
    for registered in hooks:
        for key, hook in list(registered.items()):
            registered[key] = stepping.timed(hook)
    iterator = dataloader._BaseDataLoaderIter  # noqa: SLF001
    loader = Around(iterator.__next__, iterator.__next__.__wrapped__)
    backward = Around(torch.autograd.backward, torch.autograd.backward.__wrapped__)
    iterator.__next__ = lambda self: loader.timed(self)  # noqa: PLW0108 - binds, as a method does
    torch.autograd.backward = backward.timed
    for around in (loader, backward):
        around.cell.cell_contents = around.inside
    measured: dict[str, Stepping | Around] = {
        "optimizer": stepping,
        "loader": loader,
        "backward": backward,
    }
    spent: dict[tuple[str, bool], list[int]] = {}
    times = []
    for index in range(2 * training.steps):
        for one in measured.values():
            one.spent = 0
            one.in_place = index % 2 == 0
        times.append(training.step())
        for name, one in measured.items():
            spent.setdefault((name, one.in_place), []).append(one.spent)
    hot = {
        "optimizer": _hot(lambda: [hook(training, (), {}) for hook in bare]),
        "loader": _hot_around(loader, training),
        "backward": _hot_around(backward, None),
    }
    figures = {}
    for name in measured:
        measuring = statistics.median(spent[name, False])
        kept = sorted(spent[name, True])[: round(training.steps * (1 - TRIM))]
        figures[name] = {
            "hot": hot[name],
            "median": statistics.median(kept) - measuring,
            "mean": statistics.fmean(kept) - measuring,
        }
    return {"step_ns": statistics.median(times), "steps": training.steps, "hooks": figures}


class Stepping:
    """The time that the two hooks of a step take."""

    def __init__(self) -> None:
        self.spent = 0
        self.in_place = True

    def timed(self, hook: Callable[..., None]) -> Callable[..., None]:
        """Give what stands where the hook stood."""

        def timed(*args: Any) -> None:  # noqa: ANN401 - as torch calls it
            if self.in_place:
                start = clock()
                hook(*args)
                self.spent += clock() - start
            else:
                start = clock()
                self.spent += clock() - start

        return timed


def _hot(call: Callable[[], object]) -> float:
    rounds = []
    for _ in range(ROUNDS):
        start = clock()
        for _ in range(HOT):
            call()
        rounds.append((clock() - start) / HOT)
    return min(rounds)


def _hot_around(around: Around, argument: object) -> float:
    def nothing(_: object) -> None:
        return

    around.cell.cell_contents = nothing
    ours = around.ours
    cost = _hot(lambda: ours(argument)) - _hot(lambda: nothing(argument))
    around.cell.cell_contents = around.original
    return cost


def main() -> None:
    """Do what the first argument says, with steps of about so many milliseconds."""
    what, milliseconds = sys.argv[1], int(sys.argv[2])
    training = Training(milliseconds)
    for _ in range(30):
        training.step()
    if what == "account":
        print(json.dumps(account(training)))
    else:
        times = [training.step() for _ in range(training.steps)]
        undisturbed = statistics.quantiles(times, n=10)[0]  # others on the machine only add
        print(json.dumps({"step_ns": undisturbed}))


if __name__ == "__main__":
    main()
