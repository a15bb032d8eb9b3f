"""Several ranks: replicated and sharded state, saved by some and restored by others.

Ranks are forked from a process that has imported torch and has no threads yet.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rocsteady_train import Checkpointer
from rocsteady_train.checkpoints.dcp_storage import CheckpointWriter
from rocsteady_train.checkpoints.folder import name_of, steps
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

PATIENCE = 60.0  # seconds that ranks may take in all; a deadlock would take half an hour


def on_ranks(world: int, folder: Path, do: Callable[[int, Path], None]) -> None:
    """Do something on every rank, in processes of their own; fail if one fails or none ends."""
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    children = {
        forked(rank, world, meeting, partial(do, rank, folder)): rank for rank in range(world)
    }
    ends = time.monotonic() + PATIENCE
    failed: list[str] = []
    while children and not failed:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            rank = children.pop(pid)
            if status:
                failed.append(f"rank {rank} ended with {os.waitstatus_to_exitcode(status)}")
        elif time.monotonic() > ends:
            failed.append(f"ranks {sorted(children.values())} did not end")
        else:
            time.sleep(0.01)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert not failed, failed


def forked(rank: int, world: int, meeting: Path, do: Callable[[], None]) -> int:
    """Start the process of one rank; return its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if world > 1:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{meeting}",
                rank=rank,
                world_size=world,
                timeout=timedelta(seconds=PATIENCE),
            )
        do()
        if world > 1:
            dist.barrier()
        code = 0
    except BaseException:  # noqa: BLE001 - told by the code, and in the output
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def made(world: int, *, seed: int, sharded: bool) -> dict[str, Any]:
    """Make a model whose sizes no number of ranks divides, and its optimizer."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(13, 101), nn.Linear(101, 7), nn.Linear(7, 2))
    if sharded and world > 1:
        mesh = init_device_mesh("cpu", (world,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01)}


def train(state: dict[str, Any], count: int) -> None:
    for number in range(count):
        torch.manual_seed(100 + number)
        state["optimizer"].zero_grad()
        state["model"](torch.randn(4, 13)).square().sum().backward()
        state["optimizer"].step()


def full(state: dict[str, Any]) -> dict[str, Any]:
    """Return all tensors, whole; every rank must ask."""
    tensors = {f"model/{name}": tensor for name, tensor in state["model"].state_dict().items()}
    for number, slots in state["optimizer"].state_dict()["state"].items():
        tensors |= {f"optimizer/{number}/{name}": tensor for name, tensor in slots.items()}
    return {
        name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        for name, tensor in tensors.items()
    }


def save_with(world: int, folder: Path, *, sharded: bool) -> None:
    def do(rank: int, folder: Path) -> None:
        state = made(world, seed=1, sharded=sharded)
        train(state, 3)
        everything = full(state)
        if rank == 0:
            torch.save(everything, folder / "wanted.pt")
        checkpointer = Checkpointer(folder / "checkpoints")
        progress = {"step": 3, "text": f"of rank {rank}"}
        checkpointer.save(3, {**state, "progress": progress}, wait=True)
        assert checkpointer.newest == 3
        checkpointer.close()

    on_ranks(world, folder, do)


def restore_with(world: int, folder: Path, *, sharded: bool) -> None:
    def do(_: int, folder: Path) -> None:
        state = made(world, seed=2, sharded=sharded)
        progress: dict[str, Any] = {}
        checkpointer = Checkpointer(folder / "checkpoints")
        assert checkpointer.restore({**state, "progress": progress}) == 3
        assert checkpointer.passed_over == []
        checkpointer.close()
        assert progress == {"step": 3, "text": "of rank 0"}
        wanted, found = torch.load(folder / "wanted.pt"), full(state)
        assert wanted.keys() == found.keys()
        for name, tensor in wanted.items():
            assert torch.equal(tensor, found[name]), name
        train(state, 1)  # and it goes on

    on_ranks(world, folder, do)


def files_of(folder: Path, step: int) -> list[int]:
    """Return how many bytes of tensors each rank wrote."""
    sizes = []
    for path in sorted((folder / "checkpoints" / name_of(step)).glob("rank-*.safetensors")):
        content = path.read_bytes()
        sizes.append(len(content) - 8 - int.from_bytes(content[:8], "little"))
    return sizes


def case_sharded_state_is_written_by_all_and_read_by_any_number(
    folder: Path, said: list[str]
) -> None:
    for world in (2, 3):
        there = folder / str(world)
        there.mkdir()
        save_with(world, there, sharded=True)
        sizes = files_of(there, 3)
        assert len(sizes) == world
        assert max(sizes) < sum(sizes) * (1 / world + 0.15), sizes
        for readers in (1, 2, 3):
            restore_with(readers, there, sharded=True)
    assert said == []


def case_sharded_state_goes_into_a_model_that_is_not_and_back(
    folder: Path, said: list[str]
) -> None:
    save_with(1, folder, sharded=False)
    restore_with(2, folder, sharded=True)
    other = folder / "other"
    other.mkdir()
    save_with(2, other, sharded=True)
    restore_with(2, other, sharded=False)
    assert said == []


def case_replicated_state_is_written_once_and_shared_out(folder: Path, said: list[str]) -> None:
    save_with(2, folder, sharded=False)
    sizes = files_of(folder, 3)
    state = made(1, seed=1, sharded=False)
    weights = sum(tensor.numel() * 4 for tensor in state["model"].state_dict().values())
    steps_of_adamw = 4 * len(list(state["model"].parameters()))
    assert sum(sizes) == 3 * weights + steps_of_adamw, "once"
    assert min(sizes) > 0.3 * sum(sizes), sizes
    for readers in (1, 2, 3):
        restore_with(readers, folder, sharded=False)
    assert said == []


def own(rank: int) -> dict[str, Any]:
    return {"rank": rank, "tensor": torch.full((3 + rank,), rank), "only": {str(rank): rank}}


def case_what_is_each_ranks_own_comes_back_to_it(folder: Path, said: list[str]) -> None:
    def save(rank: int, folder: Path) -> None:
        checkpointer = Checkpointer(folder / "checkpoints")
        state = {"shared": {"step": 1}, "own": own(rank)}
        checkpointer.save(1, state, wait=True, per_rank=("own",))
        checkpointer.close()

    def restore(rank: int, folder: Path) -> None:
        fresh: dict[str, Any] = {"shared": {}, "own": {}}
        checkpointer = Checkpointer(folder / "checkpoints")
        assert checkpointer.restore(fresh, per_rank=("own",)) == 1
        checkpointer.close()
        wanted = own(rank % 2)
        tensor = wanted.pop("tensor")
        assert torch.equal(fresh["own"].pop("tensor"), tensor)
        assert fresh == {"shared": {"step": 1}, "own": wanted}
        world = dist.get_world_size() if dist.is_initialized() else 1
        if rank == 0 and world != 2:
            assert len(said) == 1, said
            assert f"was written by 2 ranks and is read by {world}" in said[0]
        else:
            assert said == []

    on_ranks(2, folder, save)
    for readers in (2, 1, 3):
        on_ranks(readers, folder, restore)


def a_fault_on_one_rank(
    folder: Path, said: list[str], spoil: Callable[[Checkpointer], Callable[[], None]], why: str
) -> None:
    """Save three times; rank 1 cannot do the second. All hear of it, and the third works."""

    def do(rank: int, folder: Path) -> None:
        checkpointer = Checkpointer(folder / "checkpoints")
        for step in (1, 2, 3):
            undo = spoil(checkpointer) if rank == 1 and step == 2 else None
            state = {"state": {"step": step}, "own": {"tensor": torch.full((1000,), step)}}
            checkpointer.save(step, state, per_rank=("own",))
            checkpointer.wait()
            assert bool(checkpointer.failed) == (step == 2)
            if undo is not None:
                undo()
            assert checkpointer.newest == (1 if step < 3 else 3)
        if rank == 0:
            assert len(said) == 1, said
            assert "step 2 was not saved" in said[0]
            assert why in said[0], said
        fresh: dict[str, Any] = {"state": {}, "own": {}}
        assert checkpointer.restore(fresh, per_rank=("own",)) == 3
        assert bool((fresh["own"]["tensor"] == 3).all())
        checkpointer.close()

    on_ranks(2, folder, do)
    assert [step for step, _ in steps(folder / "checkpoints")] == [3, 1]
    assert not list((folder / "checkpoints").glob("unfinished-*"))


def replaced(owner: Any, name: str, other: Any) -> Callable[[], None]:
    original = getattr(owner, name)
    setattr(owner, name, other)
    return lambda: setattr(owner, name, original)


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def case_one_rank_has_no_memory_for_its_copy(folder: Path, said: list[str]) -> None:
    def spoil(checkpointer: Checkpointer) -> Callable[[], None]:
        def fail(*_: object) -> None:
            raise MemoryError("no memory for the copy")

        return replaced(checkpointer, "_staged", fail)

    a_fault_on_one_rank(folder, said, spoil, "rank 1: MemoryError: no memory for the copy")


def case_one_rank_has_a_full_disk(folder: Path, said: list[str]) -> None:
    a_fault_on_one_rank(
        folder, said, lambda _: replaced(os, "write", full_disk), "No space left on device"
    )


def case_one_rank_cannot_make_the_folder(folder: Path, said: list[str]) -> None:
    a_fault_on_one_rank(
        folder,
        said,
        lambda _: replaced(CheckpointWriter, "set_up_storage_writer", full_disk),
        "No space left on device",
    )


def case_all_ranks_pass_over_what_one_of_them_finds_broken(folder: Path, said: list[str]) -> None:
    def save(rank: int, folder: Path) -> None:
        checkpointer = Checkpointer(folder / "checkpoints")
        for step in (1, 2):
            state = {"own": {"tensor": torch.full((100,), step)}}
            checkpointer.save(step, state, wait=True, per_rank=("own",))
        checkpointer.close()
        del rank

    def restore(rank: int, folder: Path) -> None:
        fresh: dict[str, Any] = {"own": {}}
        checkpointer = Checkpointer(folder / "checkpoints")
        assert checkpointer.restore(fresh, per_rank=("own",)) == 1
        assert bool((fresh["own"]["tensor"] == 1).all())
        assert len(checkpointer.passed_over) == 1
        checkpointer.close()
        assert len(said) == (rank == 0)

    on_ranks(2, folder, save)
    names = sorted(path.name for path in (folder / "checkpoints" / name_of(2)).iterdir())
    plan = json.loads((folder / "checkpoints" / name_of(2) / "plan.json").read_bytes())
    assert sorted(plan) == ["rank-0/own/tensor", "rank-1/own/tensor"]
    for name in names:
        path = folder / "checkpoints" / name_of(2) / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        on_ranks(2, folder, restore)
        aside = folder / "checkpoints" / "set-aside" / name_of(2)
        aside.rename(folder / "checkpoints" / name_of(2))
        path.write_bytes(content)


def case_no_training_begins_where_another_one_trains(folder: Path, said: list[str]) -> None:
    first = Checkpointer(folder / "checkpoints")

    def do(rank: int, folder: Path) -> None:
        try:
            Checkpointer(folder / "checkpoints")
        except Exception as error:  # noqa: BLE001 - looked at
            text = str(error)
        else:
            text = ""
        assert "is in use by another training process" in text, (rank, text)

    on_ranks(2, folder, do)
    first.close()
    assert said == []
