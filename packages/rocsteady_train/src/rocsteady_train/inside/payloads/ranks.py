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

JOIN_WITHIN = timedelta(seconds=45)  # for joining, and for one collective
ENDED_WITHIN = 5.0  # seconds
SIZE = 4096
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
        arguments["backend"], init_method=store, rank=rank, world_size=2, timeout=JOIN_WITHIN
    )
    yield _collectives(torch, rank, device)
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
