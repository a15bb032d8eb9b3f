"""States of every kind: saved, restored into fresh objects, and compared to the bit."""

from __future__ import annotations

import collections
import enum
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np  # type: ignore[import-not-found, unused-ignore]
import torch
from rocsteady_train import Checkpointer, CheckpointError
from rocsteady_train.checkpoints import tensor_files
from rocsteady_train.checkpoints.folder import MANIFEST, name_of, steps
from rocsteady_train.checkpoints.tensor_files import DTYPES
from torch import nn
from torch.optim import lr_scheduler


def same(one: Any, two: Any) -> bool:
    """Compare two states exactly: types, shapes, and every bit."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(two, torch.Tensor)
            and one.dtype == two.dtype
            and one.shape == two.shape
            and bits(one) == bits(two)
        )
    if isinstance(one, (np.ndarray, np.generic)):
        return (
            type(one) is type(two)
            and one.dtype == two.dtype
            and one.shape == two.shape
            and one.tobytes() == two.tobytes()
        )
    if isinstance(one, dict):
        return (
            isinstance(two, dict)
            and list(one) == list(two)
            and all(same(one[key], two[key]) for key in one)
        )
    if isinstance(one, (list, tuple)):
        return type(one) is type(two) and len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(two, float) and math.isnan(two)
    return type(one) is type(two) and one == two


def bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def there_and_back(folder: Path, state: dict[str, Any], fresh: dict[str, Any]) -> None:
    """Save a state, and restore it into objects that were just made."""
    checkpointer = Checkpointer(folder)
    checkpointer.save(1, state, wait=True)
    checkpointer.close()
    checkpointer = Checkpointer(folder)
    assert checkpointer.restore(fresh) == 1
    assert checkpointer.passed_over == []
    checkpointer.close()


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.norm = nn.BatchNorm1d(6)
        self.small = nn.Linear(6, 6).to(torch.bfloat16)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.words.weight  # tied
        self.turned = nn.Parameter(torch.randn(4, 6).t())
        self.picture = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.scale = nn.Parameter(torch.randn(()))
        self.register_buffer("mask", torch.rand(5, 3) > 0.5)
        self.register_buffer("counts", torch.randint(-(2**62), 2**62, (7,)))
        self.register_buffer("none", torch.empty(0, 3))
        self.register_buffer("every_second", torch.randn(10)[::2])
        self.register_buffer("odd", torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45, 0.1]))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.words(words))
        hidden = hidden + self.small(hidden.to(torch.bfloat16)).float() + self.turned.sum()
        return self.out(hidden) * self.scale


def case_a_model_of_every_kind(folder: Path, said: list[str]) -> None:
    torch.manual_seed(1)
    model = Everything()
    model(torch.arange(10)).sum().backward()
    torch.manual_seed(2)
    other = Everything()
    assert not same(dict(model.state_dict()), dict(other.state_dict()))

    there_and_back(folder, {"model": model}, {"model": other})

    assert same(dict(model.state_dict()), dict(other.state_dict()))
    assert other.out.weight is other.words.weight
    assert said == []


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, centered=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
}
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=30),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=7),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=4),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)],
        milestones=[4],
    ),
}


def train(state: dict[str, Any], numbers: range) -> list[float]:
    model, optimizer, scheduler = state["model"], state["optimizer"], state.get("scheduler")
    rates = []
    for number in numbers:
        torch.manual_seed(number)
        loss = model(torch.randint(0, 11, (10,))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(1.0)
        elif scheduler is not None:
            scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def goes_on_as_if_nothing_had_been(
    folder: Path, optimizer_of: Callable[[Any], Any], scheduler_of: Callable[[Any], Any] | None
) -> None:
    def made(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        model = Everything()
        optimizer = optimizer_of(model.parameters())
        state = {"model": model, "optimizer": optimizer}
        if scheduler_of is not None:
            state["scheduler"] = scheduler_of(optimizer)
        return state

    one, two = made(1), made(2)
    train(one, range(5))
    there_and_back(folder, one, two)
    assert same(one["optimizer"].state_dict(), two["optimizer"].state_dict())
    rates = train(one, range(5, 11))
    again = train(two, range(5, 11))
    assert rates == again
    assert same(dict(one["model"].state_dict()), dict(two["model"].state_dict()))
    assert same(one["optimizer"].state_dict(), two["optimizer"].state_dict())


def case_every_optimizer_goes_on(folder: Path, said: list[str]) -> None:
    for name, optimizer_of in OPTIMIZERS.items():
        goes_on_as_if_nothing_had_been(folder / name, optimizer_of, None)
    assert said == []


def case_every_scheduler_goes_on(folder: Path, said: list[str]) -> None:
    for name, scheduler_of in SCHEDULERS.items():
        goes_on_as_if_nothing_had_been(folder / name, OPTIMIZERS["momentum"], scheduler_of)
    assert said == []


def case_a_grad_scaler(folder: Path, said: list[str]) -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    for value in (1.0, math.inf, 1.0, 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale(weight * value).sum().backward()
        scaler.step(optimizer)
        scaler.update()
    fresh = torch.amp.GradScaler("cpu", growth_interval=2)

    there_and_back(folder, {"scaler": scaler}, {"scaler": fresh})

    assert fresh.get_scale() == scaler.get_scale() == 1024.0
    assert same(scaler.state_dict(), fresh.state_dict())
    assert said == []


class Colour(enum.IntEnum):
    RED = 3


def case_dicts_with_odd_keys_and_values(folder: Path, said: list[str]) -> None:
    state = {
        "a/b": torch.tensor([1.0]),
        "a": {"b": torch.tensor([2.0]), "b#2": torch.tensor([3.0]), "": torch.tensor(4)},
        "!": {"!": "tensor", "name": "a/b"},
        "like ours": {"!": "missed"},
        1: torch.tensor([5.0]),
        "1": torch.tensor([6.0]),
        (1, ("x", None)): [torch.tensor([7.0]), (torch.tensor([8.0]),)],
        frozenset({1, 2}): {3, 4},
        b"\xff": bytearray(b"bytes"),
        None: True,
        2.5: {"deep": {"deeper": [[[{}]]]}},
        torch.float32: torch.device("cpu"),
        "size": torch.Size([1, 2]),
        "text": "\ud800 \0 \u2028 \U0001f600",
        "numbers": [math.nan, math.inf, -math.inf, -0.0, 5e-324, 2**200, -1],
        "colour": Colour.RED,
        "__metadata__": torch.tensor([9]),
        "ordered": collections.OrderedDict(b=1, a=torch.tensor([10])),
    }
    wanted = {**state, b"\xff": b"bytes", "colour": 3, "ordered": dict(state["ordered"])}
    fresh: dict[Any, Any] = {"a": 7, "gone": 8}

    there_and_back(folder, {"odd": state}, {"odd": fresh})

    assert same(wanted, fresh), fresh
    assert said == []


def case_numpy(folder: Path, said: list[str]) -> None:
    state = {
        "array": np.arange(12.0).reshape(3, 4).T,
        "empty": np.zeros((0, 2), np.int16),
        "zero-dim": np.array(7, np.uint64),
        "bools": np.array([True, False]),
        "half": np.float16(0.1),
        "double": np.float64(0.1),
        "long": np.int64(-(2**63)),
        "bool": np.bool_(True),  # noqa: FBT003 - a value of NumPy
        "complex": np.complex128(1 + 2j),
        np.int32(5): np.float32(math.nan),
        "text": np.str_("text"),
        "extended": np.longdouble("0.1"),
    }
    fresh: dict[Any, Any] = {}

    there_and_back(folder, {"state": state}, {"state": fresh})

    assert same({**state, "text": "text"}, fresh), fresh
    assert said == []


def case_arrays_that_torch_has_no_word_for_are_told(folder: Path, said: list[str]) -> None:
    state = {
        "extended": np.zeros(3, np.longdouble),
        "foreign": np.zeros(3, ">f4"),
        "objects": np.array([object()]),
        "names": np.array(["a"]),
        "kept": np.ones(2),
    }
    fresh: dict[Any, Any] = {"names": "at hand"}

    there_and_back(folder, {"state": state}, {"state": fresh})

    assert list(fresh) == ["names", "kept"]
    assert fresh["names"] == "at hand"
    assert len(said) == 4, said


def case_random_generators(folder: Path, said: list[str]) -> None:
    def states() -> dict[str, Any]:
        return {
            "python": random.getstate(),
            "numpy": np.random.get_state(legacy=False),  # noqa: NPY002 - what scripts use
            "generator": np.random.default_rng(7).bit_generator.state,
            "torch": torch.get_rng_state(),
        }

    def drawn() -> list[Any]:
        return [random.gauss(0, 1), torch.rand(3), np.random.rand(2)]  # noqa: NPY002

    random.seed(5)
    drawn()
    saved, fresh = states(), states()
    wanted = drawn()

    there_and_back(folder, {"random": saved}, {"random": fresh})

    random.setstate(fresh["python"])
    torch.set_rng_state(fresh["torch"])
    np.random.set_state(fresh["numpy"])  # noqa: NPY002
    assert same(wanted, drawn())
    assert same(saved, fresh)
    assert said == []


def case_every_dtype_that_has_a_name(folder: Path, said: list[str]) -> None:
    memory = torch.randint(0, 256, (1024,), dtype=torch.uint8)
    state = {str(dtype): memory.clone().view(dtype) for dtype in DTYPES if dtype != torch.bool}
    fresh = {name: torch.empty_like(tensor) for name, tensor in state.items()}

    there_and_back(folder, {"state": state}, {"state": fresh})

    assert same(state, fresh)
    assert said == []


def case_a_dtype_without_a_name_is_told_and_training_goes_on(folder: Path, said: list[str]) -> None:
    checkpointer = Checkpointer(folder)
    checkpointer.save(1, {"state": {"waves": torch.zeros(2, dtype=torch.complex128)}})
    checkpointer.wait()
    assert "state/waves is of torch.complex128" in said[0]
    assert steps(folder) == []
    checkpointer.save(2, {"state": {"waves": torch.zeros(2)}}, wait=True)
    assert checkpointer.newest == 2
    assert [path.name for _, path in steps(folder)] == [name_of(2)]
    checkpointer.close()


def case_what_cannot_be_captured_is_told_once_and_stays(folder: Path, said: list[str]) -> None:
    first, at_hand = object(), object()
    checkpointer = Checkpointer(folder)
    for step in (1, 2, 3):
        state = {"kept": step, "object": first, "list": [1, first], "set": {first}, first: 5}
        checkpointer.save(step, {"state": state}, wait=True)
    assert len(said) == 4, said
    assert all("state/" in text and "(builtins.object)" in text for text in said), said
    fresh = {"kept": 0, "object": at_hand, "list": [0, at_hand], "set": {at_hand}}

    assert checkpointer.restore({"state": fresh}) == 3

    assert fresh == {"kept": 3, "object": at_hand, "list": [1, at_hand], "set": {at_hand}}
    checkpointer.close()


def case_a_value_without_state_is_told_and_training_goes_on(folder: Path, said: list[str]) -> None:
    checkpointer = Checkpointer(folder)
    checkpointer.save(1, {"number": 5})
    checkpointer.wait()
    assert len(said) == 1
    assert "step 1 was not saved: int has no state_dict and is no dict" in said[0]
    checkpointer.close()


def refused(checkpointer: Checkpointer, state: dict[str, Any]) -> str:
    """Restore, which must be refused and change nothing; return the reason."""
    before = {
        name: {key: bits(tensor) for key, tensor in value.state_dict().items()}
        for name, value in state.items()
        if isinstance(value, nn.Module)
    }
    values = {name: dict(value) for name, value in state.items() if isinstance(value, dict)}
    try:
        checkpointer.restore(state)
    except CheckpointError as error:
        for name, tensors in before.items():
            found = {key: bits(tensor) for key, tensor in state[name].state_dict().items()}
            assert found == tensors
        for name, value in values.items():
            assert state[name] == value
        return str(error)
    raise AssertionError("it was not refused")


def case_another_model_is_refused_before_anything_changes(folder: Path, said: list[str]) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    checkpointer = Checkpointer(folder)
    saved = {"progress": {"epoch": 1}, "model": model, "optimizer": optimizer}
    checkpointer.save(1, saved, wait=True)

    def attempt(other: nn.Module, groups: list[dict[str, Any]] | None = None) -> str:
        rule = torch.optim.AdamW(groups or other.parameters())
        state = {"progress": {"epoch": 7}, "model": other, "optimizer": rule}
        return refused(checkpointer, state)

    longer = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2))
    assert "does not have model/2.bias, model/2.weight" in attempt(longer)
    assert "it has model/1.bias, model/1.weight" in attempt(nn.Sequential(nn.Linear(3, 4)))
    wider = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))
    assert "model/1.weight has the shape (2, 4) in the checkpoint and (3, 4)" in attempt(wider)
    alike = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    groups = [{"params": alike[0].parameters()}, {"params": alike[1].parameters()}]
    assert "groups of [4] parameters there and of [2, 2] here" in attempt(alike, groups)
    assert "has no 'scaler'" in refused(checkpointer, {"model": alike, "scaler": {}})
    assert said == []
    checkpointer.close()


def case_a_tensor_of_the_users_own_may_have_grown(folder: Path, said: list[str]) -> None:
    fresh = {"losses": torch.zeros(0), "kept": torch.zeros(2)}
    kept = fresh["kept"]

    state = {"losses": torch.arange(5.0), "kept": torch.ones(2)}
    there_and_back(folder, {"progress": state}, {"progress": fresh})

    assert same(state, fresh)
    assert fresh["kept"] is not state["kept"]
    assert bits(kept) == bits(torch.ones(2)), "it is filled in place"
    assert said == []


def case_a_save_has_the_state_of_the_moment_of_the_call(folder: Path, said: list[str]) -> None:
    tensor, array, progress = torch.zeros(300_000), np.zeros(1000), {"list": [0]}
    state = {"state": {"tensor": tensor, "array": array}, "progress": progress}
    checkpointer = Checkpointer(folder, keep=20)
    for step in range(1, 11):
        tensor.fill_(step)
        array.fill(step)
        progress["list"][0] = step
        checkpointer.save(step, state)
        tensor.fill_(-1)  # training goes on at once
        array.fill(-1)
        progress["list"].append(step)
    checkpointer.wait()
    assert [step for step, _ in steps(folder)] == list(range(10, 0, -1))
    for step in range(10, 0, -1):
        fresh: dict[str, Any] = {"state": {"tensor": torch.zeros(300_000)}, "progress": {}}
        assert checkpointer.restore(fresh, start=folder / name_of(step)) == step
        assert bool((fresh["state"]["tensor"] == step).all())
        assert bool((fresh["state"]["array"] == step).all())
        assert fresh["progress"]["list"] == [step, *range(1, step)]
    assert len(said) == 9, said  # those set aside, on the way back
    assert all("which was asked for" in text for text in said)
    checkpointer.close()


def case_the_newest_are_kept_and_one_in_n_for_good(folder: Path, said: list[str]) -> None:
    checkpointer = Checkpointer(folder, keep=2, keep_every=4)
    for step in range(10, 60, 10):
        checkpointer.save(step, {"state": {"step": step}}, wait=True)
    checkpointer.close()
    checkpointer = Checkpointer(folder, keep=2, keep_every=4)
    fresh: dict[str, Any] = {}
    assert checkpointer.restore({"state": fresh}) == 50
    for step in range(60, 130, 10):
        checkpointer.save(step, {"state": {"step": step}}, wait=True)
    assert [step for step, _ in steps(folder)] == [120, 110, 80, 40]
    assert (folder / "latest").read_text() == f"{name_of(120)}\n"
    hidden = {path.name for path in folder.iterdir()} - {path.name for _, path in steps(folder)}
    assert hidden == {"latest", ".lock"}
    assert said == []
    checkpointer.close()


def case_a_step_that_is_not_newer_is_told(folder: Path, said: list[str]) -> None:
    checkpointer = Checkpointer(folder)
    checkpointer.save(5, {"state": {"step": 5}}, wait=True)
    checkpointer.save(5, {"state": {"step": 6}}, wait=True)
    assert said == ["rocsteady: step 5 is not saved: a checkpoint of step 5 already exists."]
    fresh: dict[str, Any] = {}
    assert checkpointer.restore({"state": fresh}) == 5
    assert fresh == {"step": 5}
    checkpointer.close()


def case_a_new_training_in_an_old_folder_keeps_its_own(folder: Path, said: list[str]) -> None:
    old = Checkpointer(folder)
    for step in (1000, 2000, 3000):
        old.save(step, {"state": {"step": step}}, wait=True)
    old.close()
    new = Checkpointer(folder)  # and nobody asks it to restore
    new.save(10, {"state": {"step": 10}}, wait=True)
    new.save(20, {"state": {"step": 20}}, wait=True)
    assert [step for step, _ in steps(folder)] == [3000, 2000, 1000, 20]
    assert len(said) == 1
    assert "also has step-000003000" in said[0]
    new.close()


def case_a_folder_without_checkpoints_gives_none(folder: Path, said: list[str]) -> None:
    checkpointer = Checkpointer(folder / "not" / "there")
    fresh = {"epoch": 3}
    assert checkpointer.restore({"state": fresh}) is None
    assert fresh == {"epoch": 3}
    assert said == []
    checkpointer.close()


def case_a_second_process_is_refused_until_the_first_is_done(folder: Path, said: list[str]) -> None:
    def another() -> int:
        pid = os.fork()
        if pid == 0:
            try:
                Checkpointer(folder).close()
            except CheckpointError as error:
                os._exit(1 if "is in use by another training process" in str(error) else 2)
            except BaseException:  # noqa: BLE001 - the parent is told by the code
                os._exit(3)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    checkpointer = Checkpointer(folder)
    assert another() == 1
    checkpointer.close()
    assert another() == 0
    assert said == []


ENDS_AT_ONCE = """
import sys, torch
from rocsteady_train import Checkpointer
Checkpointer(sys.argv[1]).save(7, {"state": {"tensor": torch.full((4_000_000,), 7.0)}})
"""


def case_a_script_that_ends_without_waiting_has_its_last_save(
    folder: Path, said: list[str]
) -> None:
    subprocess.run([sys.executable, "-c", ENDS_AT_ONCE, str(folder)], check=True, timeout=60)
    fresh: dict[str, Any] = {}
    checkpointer = Checkpointer(folder)
    assert checkpointer.restore({"state": fresh}) == 7
    assert bool((fresh["tensor"] == 7).all())
    assert said == []
    checkpointer.close()


def case_the_tensors_are_a_safetensors_file(folder: Path, said: list[str]) -> None:
    state = {
        "a": torch.randn(3, 5),
        "b": torch.tensor(True),  # noqa: FBT003 - a tensor
        "c": torch.randn(4).to(torch.bfloat16),
        "d": torch.zeros(0),
        "e": torch.randint(0, 9, (2, 2)),
    }
    checkpointer = Checkpointer(folder)
    checkpointer.save(1, {"state": state}, wait=True)
    checkpointer.close()
    path = folder / name_of(1) / "rank-0.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    end = 0
    for entry in sorted(header.values(), key=lambda entry: entry["data_offsets"]):
        assert entry["data_offsets"][0] == end, "the format allows no gaps"
        end = entry["data_offsets"][1]
    assert end == len(data)
    names = {name: dtype for dtype, name in DTYPES.items()}
    assert set(header) == {f"state/{name}" for name in state}
    for name, tensor in state.items():
        entry = header[f"state/{name}"]
        start, stop = entry["data_offsets"]
        assert names[entry["dtype"]] == tensor.dtype
        assert entry["shape"] == list(tensor.shape)
        assert data[start:stop] == bits(tensor)
        assert start % tensor.element_size() == 0
    assert said == []


def never(_: object) -> bool:
    return False


def case_one_process_writes_what_dcp_would_have_planned(folder: Path, said: list[str]) -> None:
    torch.manual_seed(1)
    model = Everything()
    state = {"model": model, "odd": {"zero": torch.tensor(3), "text": "x"}}

    all_plain = tensor_files.all_plain
    for name in ("alone", "planned"):
        checkpointer = Checkpointer(folder / name)
        tensor_files.all_plain = all_plain if name == "alone" else never  # type: ignore[assignment]
        checkpointer.save(1, state, wait=True)
        checkpointer.close()
    fresh: dict[str, Any] = {"model": Everything(), "odd": {}}
    checkpointer = Checkpointer(folder / "alone")
    assert checkpointer.restore(fresh) == 1  # read by DCP's plan too
    checkpointer.close()
    tensor_files.all_plain = all_plain

    assert same(dict(model.state_dict()), dict(fresh["model"].state_dict()))
    one, two = (folder / name / name_of(1) for name in ("alone", "planned"))
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in two.iterdir())
    for name in names:
        if name != MANIFEST:  # it has the time
            assert (one / name).read_bytes() == (two / name).read_bytes(), name
    assert said == []


PLAIN_MODEL = """
import sys
import torch
import rocsteady_train
model = torch.nn.Linear(3, 3)
for step in (1, 2):
    checkpointer = rocsteady_train.Checkpointer(sys.argv[1])
    checkpointer.restore({"model": model})
    checkpointer.save(step, {"model": model}, wait=True)
    checkpointer.close()
print(*[name for name in sys.modules if name.startswith("torch.distributed.checkpoint")])
"""


def case_a_plain_model_does_not_load_dcp(folder: Path, said: list[str]) -> None:
    command = [sys.executable, "-c", PLAIN_MODEL, str(folder)]
    printed = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert printed.stdout.split() == []
    assert [step for step, _ in steps(folder)] == [2, 1]
    assert said == []
