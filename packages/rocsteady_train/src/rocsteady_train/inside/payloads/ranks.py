"""Two ranks on this machine that talk to each other, over the loopback only.

Rank 0 is this process. Rank 1 is forked from it before a device is touched, and ends with it. Rank
0 says over a pipe that there is one more try, since only it knows; rank 1 says how it went.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from .experiment import Experiment, NotHere, WrongNumbers

WITHIN = timedelta(seconds=45)  # for joining, and for one collective
ENDED_WITHIN = 5.0  # seconds
SIZE = 4096
WIDTH, ROWS = 16, 8
RATE = 0.1
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG

Step = Callable[[int], None]


def two_ranks(trial: Experiment) -> None:
    torch, arguments = trial.torch, trial.arguments
    if not torch.distributed.is_available():
        raise NotHere("this torch was built without torch.distributed")
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    methods = torch.multiprocessing.get_all_start_methods()
    context = torch.multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    here, there = context.Pipe()
    other = context.Process(target=_second, args=(here, there, trial.folder, arguments))
    other.daemon = True
    other.start()
    there.close()
    try:
        _first(trial, here)
    finally:
        here.close()
        other.join(ENDED_WITHIN)
        if other.is_alive():
            other.kill()


def _first(trial: Experiment, pipe: Any) -> None:
    try:
        _possible(trial.torch, trial.arguments["backend"])
        pipe.send_bytes(b"join")
        with _joined(trial.torch, 0, trial.folder, trial.arguments) as step:
            for number in trial.tries():
                pipe.send_bytes(b"try")
                step(number)
                _heard(pipe.recv_bytes())
    except (NotHere, WrongNumbers):
        raise
    except Exception as error:  # it may be because of the other one, who knows better
        with contextlib.suppress(EOFError, OSError):
            if pipe.poll(1.0):
                _heard(pipe.recv_bytes())
        raise error from None


def _heard(words: bytes) -> None:
    kind, _, text = words.decode().partition(" ")
    if kind == "wrong":
        raise WrongNumbers(f"rank 1: {text}")
    if kind == "raised":
        raise RuntimeError(f"rank 1: {text}")


def _second(here: Any, pipe: Any, folder: str, arguments: dict[str, Any]) -> None:
    here.close()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    try:
        import torch  # noqa: PLC0415 - inherited, or where there is no fork imported anew

        pipe.recv_bytes()
        with _joined(torch, 1, folder, arguments) as step:
            number = 0
            while True:
                pipe.recv_bytes()
                step(number)
                pipe.send_bytes(b"ok")
                number += 1
    except EOFError:  # rank 0 is done, or gone
        return
    except WrongNumbers as wrong:
        pipe.send_bytes(f"wrong {wrong}".encode())
    except Exception as error:
        pipe.send_bytes(f"raised {type(error).__name__}: {error}"[:2000].encode())


def _possible(torch: Any, backend: str) -> None:
    if backend == "nccl":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count < 2:  # noqa: PLR2004 - one for each
            raise NotHere("one GPU" if count else "no GPU")
        if not torch.distributed.is_nccl_available():
            raise NotHere("this torch was built without nccl")
    elif not torch.distributed.is_gloo_available():
        raise NotHere("this torch was built without gloo")


@contextlib.contextmanager
def _joined(torch: Any, rank: int, folder: str, arguments: dict[str, Any]) -> Iterator[Step]:
    device = "cpu"
    if arguments["backend"] == "nccl":
        device = f"cuda:{rank}"
        torch.cuda.set_device(rank)
    store = "file:///" + os.path.join(folder, "ranks").lstrip("/")
    torch.distributed.init_process_group(
        arguments["backend"], init_method=store, rank=rank, world_size=2, timeout=WITHIN
    )
    make = {"collectives": _collectives, "ddp": _ddp, "fsdp": _fsdp}[arguments["what"]]
    yield make(torch, rank, device)
    torch.distributed.destroy_process_group()


def _collectives(torch: Any, rank: int, device: str) -> Step:
    numbers = torch.arange(SIZE, dtype=torch.float32, device=device)

    def step(number: int) -> None:
        summed = numbers * (rank + 1) + number
        torch.distributed.all_reduce(summed)
        if not torch.equal(summed, numbers * 3 + 2 * number):  # whole numbers: exact
            raise WrongNumbers("all_reduce")
        received = numbers + number if rank == 0 else torch.zeros_like(numbers)
        torch.distributed.broadcast(received, 0)
        if not torch.equal(received, numbers + number):
            raise WrongNumbers("broadcast")

    return step


def _ddp(torch: Any, rank: int, device: str) -> Step:
    model = torch.nn.parallel.DistributedDataParallel(_model(torch, device))
    return _trained(torch, rank, device, model, lambda one: one)


def _fsdp(torch: Any, rank: int, device: str) -> Step:
    try:
        from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    except ImportError:
        raise NotHere(f"torch {torch.__version__} has no fully_shard") from None
    model = _model(torch, device)
    fully_shard(model, mesh=init_device_mesh(device.partition(":")[0], (2,)))
    return _trained(torch, rank, device, model, lambda one: one.full_tensor())


def _trained(torch: Any, rank: int, device: str, model: Any, whole: Callable[[Any], Any]) -> Step:
    """Return a step, after which the weights must be those of one process with both batches."""
    exact = _model(torch, "cpu").double()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    right = torch.optim.SGD(exact.parameters(), RATE)
    # Errors of earlier steps stay in the weights: each adds a few eps of what it changes.
    eps = float(torch.finfo(torch.float32).eps)

    def step(number: int) -> None:
        batches = [_batch(torch, 2 * number + each) for each in range(2)]
        optimizer.zero_grad()
        model(batches[rank].to(device)).pow(2).mean().backward()
        optimizer.step()
        right.zero_grad()
        for batch in batches:
            (exact(batch.double()).pow(2).mean() / 2).backward()
        right.step()
        for found, reference in zip(model.parameters(), exact.parameters()):
            off = (whole(found.detach()).cpu().double() - reference.detach()).abs().max()
            bound = (number + 1) * WIDTH * eps * float(reference.detach().abs().max())
            if not float(off) <= bound:
                raise WrongNumbers(f"the weights are off by {float(off):.3g} at step {number + 1}")

    return step


def _model(torch: Any, device: str) -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(WIDTH, WIDTH).to(device)


def _batch(torch: Any, number: int) -> Any:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(number))


def data_parallel(trial: Experiment) -> None:
    """One process, two GPUs: DataParallel, against one process with one."""
    torch = trial.torch
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < 2:  # noqa: PLR2004 - it is for two
        raise NotHere("one GPU" if count else "no GPU")
    model = torch.nn.DataParallel(_model(torch, "cuda:0"), [0, 1])
    exact = _model(torch, "cpu").double()
    bound = WIDTH * float(torch.finfo(torch.float32).eps)
    for number in trial.tries():
        batch = _batch(torch, number)
        model.zero_grad()
        exact.zero_grad()
        model(batch.to("cuda:0")).pow(2).sum().backward()
        exact(batch.double()).pow(2).sum().backward()
        for found, reference in zip(model.parameters(), exact.parameters()):
            trial.compare(found.grad, reference.grad, bound, "gradient")
