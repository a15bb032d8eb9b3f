"""What rocsteady_train.Loop costs a training step, counted directly.

    PYTHONPATH=src PATH-OF-A-PYTHON-WITH-TORCH benchmarks/loop_cost.py

Real steps of about 2 ms. Timed in place: the whole of ``loop.step``, and in it the four lines that
a bare loop has (zero_grad, the loss, backward, the optimizer). What is left is ours, less what the
timers themselves cost, which is measured in place too, with a call that does nothing. All figures
are medians over the quicker quarter of the steps: in the others somebody else had the machine. Then
the same in turn with a bare loop, to see that nothing was forgotten. The exit code says whether a
plain model costs what is wanted; buffers that move must be copied, and splitting has a cost of its
own.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter_ns as clock
from typing import Any

import rocsteady_train
import torch
from rocsteady_train.loop import micro_batches

STEPS, WARM_UP = 1200, 100
WANTED = 2.0  # per cent of a step, at most
WIDTH, LAYERS, BATCH = 256, 4, 104


class Timer:
    """Adds up what some calls take."""

    def __init__(self) -> None:
        self.spent = 0
        self.calls = 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same function, timed."""

        def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function has them
            began = clock()
            try:
                return call(*arguments, **named)
            finally:
                self.spent += clock() - began
                self.calls += 1

        return timed


def network(*, normal: bool) -> Any:  # noqa: ANN401 - torch has no types here
    """Return a multi-layer perceptron, with batch norm or without."""
    torch.manual_seed(0)
    layers = []
    for _ in range(LAYERS):
        layers.append(torch.nn.Linear(WIDTH, WIDTH))
        if normal:
            layers.append(torch.nn.BatchNorm1d(WIDTH))
    return torch.nn.Sequential(*layers)


def account(*, normal: bool, part: int | None, inner: dict[str, tuple[Any, str]]) -> Any:  # noqa: ANN401
    """Train, and return nanoseconds: a step, what is ours in it, and in some functions of ours."""
    model = network(normal=normal)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    data = torch.randn(BATCH * STEPS, WIDTH)
    bare = Timer()
    ours = {name: Timer() for name in inner}
    kept = {name: getattr(*place) for name, place in inner.items()}
    backward = torch.Tensor.backward
    idle = Timer()
    nothing = idle.around(lambda *_: None)
    steps: list[int] = []
    shares: list[int] = []
    calls: list[int] = []
    overheads: list[int] = []  # of a timed call, beyond what it says
    functions: dict[str, list[float]] = {name: [] for name in inner}
    with tempfile.TemporaryDirectory() as folder:
        loop = rocsteady_train.Loop(
            model=model,
            optimizer=optimizer,
            loader=torch.utils.data.DataLoader(data, batch_size=BATCH),
            epochs=1,
            checkpoints=folder,
            micro_batch=part,
        )
        compute = bare.around(lambda part: model(part).square().mean())
        optimizer.zero_grad = bare.around(optimizer.zero_grad)
        optimizer.step = bare.around(optimizer.step)
        torch.Tensor.backward = bare.around(backward)
        for name, (owner, function) in inner.items():
            setattr(owner, function, ours[name].around(kept[name]))
        try:
            for batch in loop:
                before, counted = bare.spent, bare.calls
                marks = {name: timer.spent for name, timer in ours.items()}
                counts = sum(timer.calls for timer in ours.values())
                began = clock()
                loop.step(batch, compute, reduction="mean")
                took = clock() - began
                steps.append(took)
                shares.append(took - (bare.spent - before))
                calls.append(bare.calls - counted + sum(t.calls for t in ours.values()) - counts)
                model(batch)  # so that caches are as in a step
                inside, began = idle.spent, clock()
                nothing()
                overheads.append(clock() - began - (idle.spent - inside))
                for name, timer in ours.items():
                    functions[name].append(timer.spent - marks[name])
        finally:
            torch.Tensor.backward = backward
            for name, (owner, function) in inner.items():
                setattr(owner, function, kept[name])
    quick = quicker(steps)
    return (
        statistics.median(steps[number] for number in quick),
        statistics.median(shares[number] for number in quick)
        - statistics.median(calls) * statistics.median(overheads[number] for number in quick),
        {
            name: statistics.median(values[number] for number in quick)
            for name, values in functions.items()
        },
    )


def quicker(steps: list[int]) -> list[int]:
    """Return the numbers of the quicker quarter of the steps."""
    return sorted(range(WARM_UP, len(steps)), key=lambda number: steps[number])[: len(steps) // 4]


def compare() -> tuple[float, float]:
    """Return nanoseconds of a bare step and of loop.step, taken in turn."""
    model = network(normal=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    data = torch.randn(BATCH * 2 * STEPS, WIDTH)
    bare: list[int] = []
    ours: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        loop = rocsteady_train.Loop(
            model=model,
            optimizer=optimizer,
            loader=torch.utils.data.DataLoader(data, batch_size=BATCH),
            epochs=1,
            checkpoints=folder,
        )
        for number, batch in enumerate(loop):
            began = clock()
            if number % 2:
                loop.step(batch, lambda part: model(part).square().mean(), reduction="mean")
                ours.append(clock() - began)
            else:
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                bare.append(clock() - began)
    return (
        statistics.median(bare[number] for number in quicker(bare)),
        statistics.median(ours[number] for number in quicker(ours)),
    )


def main() -> None:
    """Measure, print, and say whether it is as wanted."""
    torch.set_num_threads(1)
    inner = {"whether and where to split": (micro_batches.MicroBatches, "_pieces")}
    good = True
    for title, normal, part in (
        ("a perceptron", False, None),
        ("the same with batch norm", True, None),
        ("a perceptron, in two parts", False, BATCH // 2),
    ):
        step, share, _ = account(normal=normal, part=part, inner={})
        _, _, functions = account(normal=normal, part=part, inner=inner)
        print(f"{title}: {step / 1e6:.2f} ms a step, of which ours {share / 1e3:.1f} us,", end=" ")
        print(f"{100 * share / step:.2f} %", end="")
        plain = part is None and not normal
        print(f"; at most {WANTED} % is wanted" if plain else "")
        good = good and (not plain or 100 * share / step <= WANTED)
        for name, spent in functions.items():
            print(f"    {name:<30}{spent / 1e3:6.1f} us")
    bare, ours = compare()
    print(f"in turn: bare {bare / 1e6:.3f} ms, loop.step {ours / 1e6:.3f} ms:", end=" ")
    print(f"{100 * (ours / bare - 1):+.2f} %")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
