"""Memory really runs out: the address space of this process is limited while a batch is trained.

To be run with MALLOC_MMAP_THRESHOLD_=65536 and MALLOC_ARENA_MAX=1. Else glibc keeps what was freed,
and finds room in the arenas of other threads, and what fits depends on what was there before.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rocsteady_train
import torch
from rocsteady_train.loop import micro_batches
from rocsteady_train.loop.micro_batches import MicroBatchError, MicroBatches
from torch import nn

gc.freeze()
torch.set_num_threads(1)

BATCH, LENGTH, WIDTH, LAYERS = 64, 128, 64, 6
A_SAMPLE = 2 * LAYERS * LENGTH * WIDTH * 4  # bytes of activations that a backward pass needs
MEBI = 1 << 20
STEPS = 200  # in which nothing may leak
LEAK = 4  # MiB that may come and go with the heap


def network() -> nn.Module:
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1))


def data(batches: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(batches * BATCH, LENGTH, WIDTH, generator=generator)


def status(name: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(name)


@contextlib.contextmanager
def limited(to: float) -> Iterator[None]:
    """Let the address space grow to so many MiB, and no more."""
    resource.setrlimit(resource.RLIMIT_AS, (int(to * MEBI), resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def room_for(net: nn.Module, samples: float) -> float:
    """Return a limit that about so many samples fit into, once all libraries are loaded."""
    loss_of(net)(data(1)[:2]).backward()
    net.zero_grad()
    gc.collect()
    return status("VmSize") + samples * A_SAMPLE / MEBI


def loss_of(net: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda part: net(part).square().mean()


def largest(net: nn.Module, batch: torch.Tensor, limit: float) -> int:
    """Search upwards for the largest part that can be trained."""
    size = 0
    while size < BATCH and fits(net, batch[: size + 1], limit):
        size += 1
    return size


def fits(net: nn.Module, part: torch.Tensor, limit: float) -> bool:
    try:
        with limited(limit):
            loss_of(net)(part).backward()
    except RuntimeError as error:
        if not micro_batches.is_out_of_memory(error):
            raise
        micro_batches.release(error)
        return False
    finally:
        net.zero_grad()
    return True


def case_the_part_that_is_found_is_within_one_halving_of_the_largest() -> list[dict[str, Any]]:
    told = []
    batch = data(1)
    for samples in (35, 18, 9, 5):
        net = network()
        limit = room_for(net, samples)
        parts = MicroBatches(net)
        with limited(limit):
            loss = parts.backward(batch, loss_of(net), reduction="mean", zero=net.zero_grad)
        found = [parameter.grad.clone() for parameter in net.parameters()]
        net.zero_grad()
        most = largest(net, batch, limit)
        net.zero_grad()
        whole = loss_of(net)(batch)
        whole.backward()
        assert parts.size is not None
        assert parts.size <= most < 2 * parts.size, (parts.size, most)
        assert torch.allclose(loss, whole.detach(), rtol=1e-5)
        far = 0.0
        for ours, parameter in zip(found, net.parameters(), strict=True):
            far = max(
                far, ((ours - parameter.grad).abs().max() / parameter.grad.abs().max()).item()
            )
        assert far < 1e-4
        told.append({"found": parts.size, "largest": most, "gradients differ by": far})
    return told


def train(room: float | None, *, batches: int = 6) -> tuple[nn.Module, rocsteady_train.Loop]:
    net = network()
    with tempfile.TemporaryDirectory() as folder:
        loop = rocsteady_train.Loop(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9),
            loader=torch.utils.data.DataLoader(data(batches), batch_size=BATCH),
            epochs=2,
            checkpoints=folder,
        )
        for batch in loop:
            with limited(status("VmSize") + room) if room else contextlib.nullcontext():
                loop.step(batch, loss_of(net), reduction="mean")
    return net, loop


def case_a_training_that_does_not_fit_ends_with_the_same_weights() -> dict[str, Any]:
    expected, loop = train(None)
    assert (loop.steps, loop._parts.size) == (12, None)
    found, loop = train(20 * A_SAMPLE / MEBI)
    assert loop.steps == 12
    assert loop._parts.size is not None
    assert loop._parts.size < BATCH
    worst = max(
        (a - b).abs().max().item()
        for a, b in zip(expected.parameters(), found.parameters(), strict=True)
    )
    moved = max(
        (a - b).abs().max().item()
        for a, b in zip(expected.parameters(), network().parameters(), strict=True)
    )
    assert worst < 1e-4 * moved
    return {"part": loop._parts.size, "weights differ by": worst, "training moved them by": moved}


def case_no_leak_in_200_steps_that_run_out_of_memory() -> dict[str, Any]:
    net, batch = network(), data(1)
    limit = room_for(net, 20)
    sizes: list[int | None] = []
    resident: list[float] = []
    space: list[float] = []
    parts = MicroBatches(net)
    for _ in range(STEPS):
        parts.size = None  # each step begins with the whole batch
        with limited(limit):
            parts.backward(batch, loss_of(net), reduction="mean", zero=net.zero_grad)
        sizes.append(parts.size)
        net.zero_grad()
        resident.append(status("VmRSS"))
        space.append(status("VmSize"))
    assert None not in sizes  # each ran out of memory
    assert set(sizes[20:]) == set(sizes[:20])
    grown = {
        "VmRSS": max(resident[-20:]) - max(resident[10:30]),
        "VmSize": max(space[-20:]) - max(space[10:30]),
    }
    assert max(grown.values()) <= LEAK, grown
    return {"MiB more after 200 steps": grown, "bound": LEAK, "parts": list(set(sizes))}


class Room:
    """Raises what a GPU raises if more samples are trained at a time than fit."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.net = nn.Linear(2, 1)
        self.sizes: list[int] = []

    def __call__(self, part: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(part))
        if len(part) > self.samples:
            raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 124.00 MiB.")
        return self.net(part).mean()

    def train(self, parts: MicroBatches, samples: int, **declared: Any) -> None:
        parts.backward(torch.ones(samples, 2), self, zero=self.net.zero_grad, **declared)


def refused(room: Room, parts: MicroBatches, samples: int, **declared: Any) -> Exception:
    try:
        room.train(parts, samples, **declared)
    except (MicroBatchError, torch.OutOfMemoryError) as error:
        return error
    raise AssertionError("nothing was raised")


def case_batches_are_halved_until_they_fit_and_stay_so() -> None:
    room = Room(3)
    parts = MicroBatches(room.net)
    room.train(parts, 37, reduction="mean")
    assert (parts.size, parts.trained) == (3, (37, 3))
    assert room.sizes[:5] == [37, 19, 10, 5, 3]
    room.sizes = []
    room.train(parts, 6, reduction="sum")
    assert room.sizes == [3, 3]


def case_an_undeclared_loss_is_never_split() -> None:
    room = Room(8)
    parts = MicroBatches(room.net, 4)
    room.train(parts, 8)
    assert (room.sizes, parts.trained) == ([8], (8, 0))  # reported as a batch that cannot be split
    assert isinstance(refused(room, parts, 9), torch.OutOfMemoryError)


def case_what_cannot_be_halved_says_why() -> list[str]:
    single = Room(0)
    alone = refused(single, MicroBatches(single.net), 1, reduction="mean")
    several = Room(8)
    ranks = refused(several, MicroBatches(several.net, 16, alone=False), 32, reduction="mean")
    for error in (alone, ranks):
        assert isinstance(error, MicroBatchError)
        assert isinstance(error.__cause__, torch.OutOfMemoryError)
    assert "micro_batch=8" in str(ranks)
    return [str(alone), str(ranks)]


def case_a_batch_without_a_first_axis_is_trained_whole() -> None:
    net = nn.Linear(2, 1)
    parts = MicroBatches(net, 1)
    batch = (torch.ones(4, 2), torch.ones(3))
    parts.backward(batch, lambda part: net(part[0]).mean(), reduction="mean", zero=net.zero_grad)
    assert parts.trained is None
    assert net.weight.grad is not None


class Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


def case_batch_norm_is_warned_about_once() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    parts = MicroBatches(net, 2)
    handler = Listener()
    micro_batches.log.addHandler(handler)

    def train(parts: MicroBatches) -> None:
        data = torch.rand(4, 2)
        parts.backward(data, lambda part: net(part).mean(), reduction="mean", zero=net.zero_grad)

    try:
        train(parts)
        train(parts)
        assert len(handler.heard) == 1
        net.eval()
        train(MicroBatches(net, 2))
        assert len(handler.heard) == 1  # in evaluation, its mean and variance are fixed
    finally:
        micro_batches.log.removeHandler(handler)


def case_out_of_memory_in_the_optimizer_ends_the_attempt() -> str:
    net = nn.Linear(3000, 3000)
    with tempfile.TemporaryDirectory() as folder:
        loop = rocsteady_train.Loop(
            model=net,
            optimizer=torch.optim.Adam(net.parameters()),
            loader=torch.utils.data.DataLoader(torch.ones(8, 3000), batch_size=4),
            epochs=1,
            checkpoints=folder,
        )
        net(torch.ones(4, 3000)).mean().backward()
        limit = status("VmSize") + 16  # Adam needs 72
        seen: RuntimeError | None = None
        try:
            for batch in loop:
                with limited(limit):
                    loop.step(batch, loss_of(net), reduction="mean")
        except RuntimeError as error:
            seen = error
    assert seen is not None
    assert micro_batches.is_out_of_memory(seen)
    assert (loop.steps, loop._parts.size) == (0, None)
    return str(seen)[:160]
