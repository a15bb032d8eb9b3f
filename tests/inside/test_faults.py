"""Faults of a drill in scripts that know nothing of it, and a loss that is watched."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from rocsteady_train.inside import wire

from rocsteady.probe.drill import for_inside, read_faults

if TYPE_CHECKING:
    from tests.inside.conftest import Inside, Run

pytestmark = pytest.mark.slow

TRAINS = """
    import sys, torch
    from torch.utils.data import DataLoader
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    for step, batch in enumerate(DataLoader(torch.randn(80, 4), 8, num_workers=workers), 1):
        loss = model(batch).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(step, bool(loss.isfinite()), bool(model.weight.isfinite().all()), flush=True)
"""
WHOLE = [[str(step), "True", "True"] for step in range(1, 11)]


def ran(inside: Inside, python: str, spelt: str, *more: str, before: int = 0) -> Run:
    told = for_inside(read_faults(spelt), before=before, folder=inside.folder)
    return inside.run(python, inside.script(TRAINS), *more, ROCSTEADY_FAULTS=told)


def lines(run: Run) -> list[list[str]]:
    return [line.split() for line in run.out.decode().splitlines()]


def mark(inside: Inside, number: int = 0) -> dict[str, Any]:
    return dict(json.loads((inside.folder / f"{number}.fired").read_bytes()))


@pytest.mark.parametrize(
    ("kind", "code"),
    [("kill", -signal.SIGKILL), ("segv", -signal.SIGSEGV), ("abort", -signal.SIGABRT)],
)
def test_a_process_dies_in_the_step_and_only_once(
    inside: Inside, torch_python: str, kind: str, code: int
) -> None:
    first = ran(inside, torch_python, f"{kind}@4")
    again = ran(inside, torch_python, f"{kind}@4")

    assert (first.code, lines(first)) == (code, WHOLE[:3])
    assert (again.code, lines(again), inside.notes()) == (0, WHOLE, "")
    assert all(page.words[wire.W_NOT_FINITE] == 0 for page in inside.pages())
    assert (mark(inside)["step"], mark(inside)["run"]) == (4, "t")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("oom", "torch.OutOfMemoryError: out of memory. Tried to allocate 1.50 GiB."),
        ("fault", "torch.AcceleratorError: HIP error: an illegal memory access was encountered"),
    ],
)
def test_an_error_is_raised_as_if_torch_had_raised_it(
    inside: Inside, torch_python: str, kind: str, told: str
) -> None:
    ended = ran(inside, torch_python, f"{kind}@4")

    (raised,) = inside.injection.pages.glob("*.raised")
    assert (ended.code, lines(ended)) == (1, WHOLE[:3])
    assert told in ended.err.decode()
    assert "_rocsteady_inside" not in ended.err.decode()
    assert json.loads(raised.read_bytes())["place"].startswith("train.py:")


def test_steps_count_on_from_the_checkpoint(inside: Inside, torch_python: str) -> None:
    ended = ran(inside, torch_python, "kill@104", before=100)

    assert lines(ended) == WHOLE[:3]
    assert mark(inside)["step"] == 104


def test_what_is_behind_us_happens_at_once(inside: Inside, torch_python: str) -> None:
    assert lines(ran(inside, torch_python, "kill@50", before=100)) == []
    assert mark(inside)["step"] == 101


@pytest.mark.parametrize(
    ("place", "workers"),
    [("backward", "0"), ("loader", "0"), ("loader", "2"), ("step", "0"), ("aten::mm", "0")],
)
def test_a_hang_is_where_it_was_asked_for(
    inside: Inside, torch_python: str, place: str, workers: str
) -> None:
    told = for_inside(read_faults(f"hang:{place}@4"), before=0, folder=inside.folder)
    phase = {"loader": "data", "step": "optimizer"}.get(place, "backward")
    child = subprocess.Popen(
        [torch_python, inside.script(TRAINS), workers],
        env=inside.environment(ROCSTEADY_FAULTS=told),
        cwd=inside.folder,
        stdout=subprocess.DEVNULL,
    )
    try:
        _until((inside.folder / "0.fired").exists)
        time.sleep(0.5)
        pages = [page for page in inside.pages() if page.pid == child.pid]
        assert child.poll() is None
        assert [(page.steps, page.phase) for page in pages] == [(3, phase)]
    finally:
        child.kill()
        child.wait()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_nan_spoils_loss_and_weights_and_is_told(inside: Inside, torch_python: str) -> None:
    ended = ran(inside, torch_python, "nan@4")

    assert lines(ended)[:3] == WHOLE[:3]
    assert [line[1:] for line in lines(ended)[3:]] == [["False", "False"]] * 7
    words = inside.page().words
    assert (words[wire.W_NOT_FINITE], words[wire.W_FINITE]) == (4, 0)


SCALED = """
    import torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(10):
        loss = model(torch.ones(8, 4)).square().mean()
        optimizer.zero_grad(); scaler.scale(loss).backward()
        scaler.step(optimizer); scaler.update()
"""


def test_a_loss_that_is_a_number_again_is_told_too(inside: Inside, torch_python: str) -> None:
    told = for_inside(read_faults("nan@4"), before=0, folder=inside.folder)

    ended = inside.run(torch_python, inside.script(SCALED), ROCSTEADY_FAULTS=told)

    words = inside.page().words
    assert ended.code == 0, ended.err
    assert words[wire.W_STEP] == 9  # the scaler passed one over
    assert (words[wire.W_NOT_FINITE], words[wire.W_FINITE]) == (4, 4)


BROKEN = """
    import time, torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        loss = model(torch.ones(8, 4)).square().mean() * float("nan")
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        time.sleep(0.01)
"""


def test_a_loss_is_watched_in_every_run(inside: Inside, torch_python: str) -> None:
    ended = inside.run(torch_python, inside.script(BROKEN))

    assert ended.code == 0, ended.err
    assert inside.page().words[wire.W_NOT_FINITE] == 1


def test_an_operator_is_counted_by_its_calls(inside: Inside, torch_python: str) -> None:
    ended = ran(inside, torch_python, "oom:aten::addmm@6")  # one a step, in the forward pass

    assert (ended.code, lines(ended)) == (1, WHOLE[:5])
    assert "addmm" not in inside.notes()


def test_an_operators_result_becomes_nan(inside: Inside, torch_python: str) -> None:
    ended = ran(inside, torch_python, "nan:aten::addmm@6")

    assert lines(ended)[:5] == WHOLE[:5]
    assert lines(ended)[5] == ["6", "False", "False"]


def test_an_operator_that_there_is_not_leaves_a_note(inside: Inside, torch_python: str) -> None:
    ended = ran(inside, torch_python, "kill:aten::nonsense@1")

    assert (ended.code, lines(ended)) == (0, WHOLE)
    assert "no fault in aten::nonsense: this torch has no kernel" in inside.notes()


def test_faults_of_another_version_are_not_brought_about(inside: Inside, torch_python: str) -> None:
    told = json.dumps({"version": 2, "faults": []})

    ended = inside.run(torch_python, inside.script(TRAINS), ROCSTEADY_FAULTS=told)

    assert (ended.code, lines(ended)) == (0, WHOLE)
    assert "faults: not of version 1" in inside.notes()


RANKS = """
    import os, torch, torch.multiprocessing as many

    def train(rank):
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(20):
            try:
                model(torch.ones(8, 4)).mean().backward(); optimizer.step()
            except torch.OutOfMemoryError:
                print(rank, flush=True)

    if __name__ == "__main__":
        many.spawn(train, nprocs=2)
"""


def test_one_of_many_ranks_has_it(inside: Inside, torch_python: str) -> None:
    told = for_inside(read_faults("oom@4,oom@6"), before=0, folder=inside.folder)

    ended = inside.run(torch_python, inside.script(RANKS), ROCSTEADY_FAULTS=told)

    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == 2
    assert {path.name for path in inside.folder.glob("*.fired")} == {"0.fired", "1.fired"}
