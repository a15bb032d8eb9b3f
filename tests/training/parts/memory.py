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

import torch
from torch import nn

import rocsteady
from rocsteady.training import memory_errors
from rocsteady.training import micro_batches as module
from rocsteady.training.micro_batches import MicroBatches

logging.getLogger("rocsteady").addHandler(logging.NullHandler())
logging.getLogger("rocsteady").propagate = False
gc.freeze()
torch.set_num_threads(1)
module.GROW_AFTER = 10**9

BATCH, LENGTH, WIDTH, LAYERS = 64, 128, 64, 6
A_SAMPLE = 2 * LAYERS * LENGTH * WIDTH * 4  # bytes of activations that a backward pass needs
MEBI = 1 << 20
STEPS = 200  # in which nothing may leak
LEAK = 4  # MiB that may come and go with the heap


def network(*, drops: bool = False) -> nn.Module:
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    if drops:
        layers += [nn.Dropout(0.3), nn.BatchNorm1d(LENGTH)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1))


def data(batches: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(batches * BATCH, LENGTH, WIDTH, generator=generator)


def status(name: str) -> float:
    """Read VmSize or VmRSS, in MiB."""
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
        if not memory_errors.is_lack_of_memory(error):
            raise
        memory_errors.release(error)
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
            loss = parts.backward(batch, loss_of(net), zero=net.zero_grad)
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


def train(room: float | None, *, batches: int = 6) -> tuple[nn.Module, rocsteady.Loop]:
    net = network()
    with tempfile.TemporaryDirectory() as folder:
        loop = rocsteady.Loop(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9),
            loader=torch.utils.data.DataLoader(data(batches), batch_size=BATCH),
            epochs=2,
            checkpoints=folder,
        )
        for batch in loop:
            with limited(status("VmSize") + room) if room else contextlib.nullcontext():
                loop.step(batch, loss_of(net))
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
            parts.backward(batch, loss_of(net), zero=net.zero_grad)
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


def dropping(until: int, *, forced: int | None = None) -> tuple[nn.Module, int | None]:
    """Train ten steps; in one of them memory runs out, or the part is set by hand."""
    net = network(drops=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    parts = MicroBatches(net)
    torch.manual_seed(3)
    for number, batch in enumerate(data(10).split(BATCH)):
        runs_out = number == until and forced is None
        if number == until and forced is not None:
            parts.limit(forced)
        optimizer.zero_grad()
        room = 20 * A_SAMPLE / MEBI
        with limited(status("VmSize") + room) if runs_out else contextlib.nullcontext():
            parts.backward(batch, loss_of(net), zero=optimizer.zero_grad)
        optimizer.step()
    return net, parts.size


def case_after_out_of_memory_the_run_is_that_with_the_part_set_by_hand_to_the_bit() -> list[Any]:
    told = []
    for until in (0, 4):
        met, size = dropping(until)
        assert size is not None
        assert size < BATCH
        by_hand, _ = dropping(until, forced=size)
        other, _ = dropping(until, forced=size // 2)
        same = [
            torch.equal(a, b)
            for a, b in zip(met.state_dict().values(), by_hand.state_dict().values(), strict=True)
        ]
        assert all(same)
        assert not torch.equal(met[0].weight, other[0].weight)  # other parts drop otherwise
        told.append({"step": until, "part": size})
    return told


def case_out_of_memory_in_the_optimizer_ends_the_attempt() -> str:
    net = nn.Linear(3000, 3000)
    with tempfile.TemporaryDirectory() as folder:
        loop = rocsteady.Loop(
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
                    loop.step(batch, loss_of(net))
        except RuntimeError as error:
            seen = error
    assert seen is not None
    assert memory_errors.is_lack_of_memory(seen)
    assert (loop.steps, loop._parts.size) == (0, None)
    return str(seen)[:160]
