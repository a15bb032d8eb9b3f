"""What Loop must do, case by case."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rocsteady_train
import torch
from rocsteady_train.loop import micro_batches, supervisor_link
from rocsteady_train.loop.loop import Interval
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
)


class Noisy(Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        numbers = sys.modules["numpy"].random.rand() if "numpy" in sys.modules else 0.0
        return torch.tensor([float(index), random.random(), float(torch.rand(())), float(numbers)])


def make(
    folder: Path, loader: Any, *, epochs: int = 2, **more: Any
) -> tuple[rocsteady_train.Loop, Any]:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    more = {"lose_at_most": 0.0, "checkpoints": folder / "checkpoints", **more}
    return rocsteady_train.Loop(
        model=model, optimizer=optimizer, loader=loader, epochs=epochs, **more
    ), model


def batches(
    folder: Path, loader: Callable[[], Any], stop: int | None = None, **more: Any
) -> list[list[float]]:
    """Train on the batches that are left, at most so many, and return what was in them."""
    torch.manual_seed(5)
    random.seed(5)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(5)
    loop, model = make(folder, loader(), **more)
    seen = []
    for batch in loop:
        whole = batch[0] if isinstance(batch, (list, tuple)) else batch
        seen.append([float(value) for value in whole.flatten()] + [float(torch.rand(()))])
        loop.step(batch, lambda part: model(part[0] if isinstance(part, list) else part).mean())
        if stop is not None and len(seen) == stop:
            loop.save(wait=True)
            break
    loop.checkpointer.close()
    return seen


def same(
    folder: Path, loader: Callable[[], Any], *, stops: tuple[int, ...] = (1, 5, 6, 9), **more: Any
) -> None:
    """Compare with an interrupted training: the same batches, and the same draws beside them."""
    wanted = batches(folder / "alone", loader, **more)
    for stop in stops:
        where = folder / f"stop-{stop}"
        first = batches(where, loader, stop, **more)
        rest = batches(where, loader, **more)
        assert first + rest == wanted, (stop, len(first), len(rest), len(wanted))


def case_shuffled(folder: Path) -> None:
    same(folder, lambda: DataLoader(Noisy(), batch_size=4, shuffle=True))


def case_a_save_in_the_loop_counts_what_was_trained(folder: Path) -> None:
    def train(name: str, *, before: int = 0, after: int = 0) -> tuple[int, list[float]]:
        """Save and leave the loop before or after the step of one of ten batches."""
        data = DataLoader(TensorDataset(torch.arange(40.0).reshape(10, 4)), batch_size=1)
        loop, model = make(folder / name, data, epochs=1, lose_at_most=600.0)
        seen: list[float] = []
        for at, batch in enumerate(loop, 1):
            if at == before:
                loop.save(wait=True)
                break
            loop.step(batch, lambda part: model(part[0]).mean())
            seen.append(float(batch[0][0, 0]))
            if at == after:
                loop.save(wait=True)
                break
        loop.checkpointer.close()
        return loop.steps, seen

    _, wanted = train("alone")
    for name, place in (("before", {"before": 4}), ("after", {"after": 3})):
        steps, first = train(name, **place)
        end, rest = train(name)

        assert (steps, end) == (3, 10), (name, steps, end)
        assert first + rest == wanted, (name, first, rest)


def case_with_workers(folder: Path) -> None:
    same(folder, lambda: DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2), stops=(5,))


def case_workers_do_not_change_the_data(folder: Path) -> None:
    none = batches(folder / "none", lambda: DataLoader(Noisy(), batch_size=4, shuffle=True))
    two = batches(
        folder / "two", lambda: DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2)
    )
    assert none == two


def case_persistent_workers(folder: Path) -> None:
    def loader() -> Any:
        return DataLoader(
            Noisy(), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True
        )

    same(folder, loader, stops=(2, 8), epochs=3)


def case_a_generator_of_its_own(folder: Path) -> None:
    def loader() -> Any:
        return DataLoader(
            Noisy(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(9)
        )

    same(folder, loader, epochs=3)


def case_samplers(folder: Path) -> None:
    data = Noisy()
    same(
        folder / "weighted",
        lambda: DataLoader(data, batch_size=4, sampler=WeightedRandomSampler([1.0] * 24, 24)),
    )
    same(
        folder / "batches",
        lambda: DataLoader(
            data, batch_sampler=BatchSampler(RandomSampler(data), 5, drop_last=False)
        ),
    )
    same(folder / "single", lambda: DataLoader(data, batch_size=None, sampler=RandomSampler(data)))


def case_a_sampler_that_draws_at_any_time(folder: Path) -> None:
    class Drawing(Sampler):
        def __len__(self) -> int:
            return 24

        def __iter__(self) -> Iterator[int]:
            for _ in range(24):
                yield random.randrange(24)

    same(folder, lambda: DataLoader(Noisy(), batch_size=4, sampler=Drawing()))


def case_iterated_data_with_a_state(folder: Path) -> None:
    class Counting(IterableDataset):
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Iterator[torch.Tensor]:
            while self.at < 24:
                self.at += 1
                yield torch.full((4,), float(self.at))
            self.at = 0

        def state_dict(self) -> dict[str, int]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.at = state["at"]

    same(folder, lambda: DataLoader(Counting(), batch_size=4))


def case_iterated_data_without_a_state_is_told(folder: Path, said: list[str]) -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Iterator[torch.Tensor]:
            return iter(torch.ones(24, 4))

    assert len(batches(folder, lambda: DataLoader(Stream(), batch_size=4), 3, epochs=1)) == 3
    assert len(batches(folder, lambda: DataLoader(Stream(), batch_size=4), epochs=1)) == 6
    assert any("begins anew" in text for text in said), said


def case_what_is_done_stays_done(folder: Path) -> None:
    data = lambda: DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4)  # noqa: E731
    assert len(batches(folder, data)) == 4
    assert batches(folder, data) == []
    assert len(batches(folder, data, epochs=3)) == 2  # one epoch more


def case_a_loop_of_ones_own(folder: Path) -> None:
    """Without loop.step, with gradients added up over two batches: saved only in between."""

    def run(where: Path, stop: int | None) -> list[float]:
        torch.manual_seed(0)
        loop, model = make(
            where, DataLoader(TensorDataset(torch.rand(32, 4)), batch_size=4), epochs=1
        )
        optimizer = loop._optimizer
        losses = []
        for (batch,) in loop:
            loss = model(batch).square().mean()
            loss.backward()
            losses.append(float(loss.detach()))
            if loop.steps % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
            if stop is not None and loop.steps == stop:
                break
        loop.checkpointer.close()
        return losses

    wanted = run(folder / "alone", None)
    assert len(run(folder / "cut", 4)) == 5  # four are trained, and the fifth is not saved
    assert run(folder / "cut", None) == wanted[4:]


def case_values_come_back(folder: Path) -> None:
    data = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4)
    loop, model = make(folder, data)
    loop.values["best"] = 0.25
    loop.values["curve"] = [1.0, float("inf")]
    for batch in loop:
        loop.step(batch, lambda part: model(part[0]).mean())
    loop.checkpointer.close()
    loop, _ = make(folder, data)
    assert loop.values == {"best": 0.25, "curve": [1.0, float("inf")]}
    assert list(loop) == []
    assert (loop.steps, loop.epoch) == (4, 2)
    loop.checkpointer.close()


def case_progress_of_another_type_is_refused(folder: Path) -> None:
    order = {"began": {}, "consumed": 0, "loader": None, "now": {}}
    wrong: list[tuple[str, Any]] = [
        *(("epoch", each) for each in ("x", None, -1, True)),
        *(("seed", each) for each in ("x", None, 1.5)),
        ("order", []),
        ("order", {}),
        *(("order", {**order, "consumed": each}) for each in ("1", -1)),
        *(("order", {**order, name: 1}) for name in ("began", "now")),
        ("interval", "x"),
        ("interval", {}),
        ("interval", {"failures": "1", "trained": 0.0}),
    ]
    for number, (name, value) in enumerate(wrong):
        where = folder / str(number)
        loop, _ = make(where, [])
        loop._note(order)
        loop._progress[name] = value
        loop._save(wait=True)
        loop.checkpointer.close()
        try:
            make(where, [])
        except rocsteady_train.CheckpointError as error:
            assert "has no progress of rocsteady_train.Loop" in str(error), (name, value, error)
        else:
            raise AssertionError((name, value))


def case_another_model_is_refused(folder: Path) -> None:
    batches(folder, lambda: DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4))
    model = torch.nn.Sequential(torch.nn.Linear(4, 1))
    try:
        rocsteady_train.Loop(
            model=model,
            optimizer=torch.optim.SGD(model.parameters()),
            loader=[],
            epochs=1,
            checkpoints=folder / "checkpoints",
        )
    except rocsteady_train.CheckpointError as error:
        assert "another model" in str(error), error
    else:
        raise AssertionError("it was taken")


def case_sigterm_saves_and_ends(folder: Path) -> None:
    script = (
        "import sys, torch; from pathlib import Path; sys.path[:0] = sys.argv[1:3];"
        "import cases, os, signal, time;"
        "from torch.utils.data import DataLoader, TensorDataset;"
        "loop, model = cases.make(Path(sys.argv[3]), DataLoader(TensorDataset(torch.ones(400, 4)),"
        " batch_size=4), lose_at_most=1e9)\n"
        "for batch in loop:\n"
        "    loop.step(batch, lambda part: model(part[0]).mean())\n"
        "    if loop.steps == 7: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    if loop.steps > 7: raise SystemExit('it went on')\n"
    )
    package = str(Path(rocsteady_train.__file__).parents[1])
    here = str(Path(__file__).parent)
    ended = subprocess.run(
        [sys.executable, "-c", script, package, here, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGTERM, ended
    assert "step 8 is saved" in ended.stderr, ended.stderr
    assert (folder / "checkpoints" / "step-000000008").is_dir()


def case_a_handler_of_the_users_own_stays(folder: Path) -> None:
    def mine(*_: object) -> None:
        return None

    signal.signal(signal.SIGTERM, mine)
    try:
        loop, model = make(folder, DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4))
        for batch in loop:
            assert signal.getsignal(signal.SIGTERM) is mine
            loop.step(batch, lambda part: model(part[0]).mean())
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def case_the_supervisor_may_ask_for_a_save(folder: Path) -> None:
    asked = 0
    supervisor_link.save_is_wanted = lambda: asked
    data = DataLoader(TensorDataset(torch.ones(40, 4)), batch_size=4)
    loop, model = make(folder, data, epochs=1, lose_at_most=1e9)
    for batch in loop:
        loop.step(batch, lambda part: model(part[0]).mean())
        if loop.steps == 3:
            asked = 1
        if loop.steps == 5:
            loop.checkpointer.wait()
            assert loop.checkpointer.newest == 4
    loop.checkpointer.close()


def case_the_next_process_knows_what_a_save_costs(folder: Path) -> None:
    first = Interval(600.0)
    assert first.seconds == 2.0  # until it is known what a save costs
    first.saved(stall=0.5, writing=3.0)
    assert first.seconds == 20.0  # until it is known whether that was typical
    first.saved(stall=0.5, writing=3.0)
    assert first.seconds >= 50.0  # so that saves stall below 1 % of the time

    following = Interval(600.0)
    following.interrupted(first.state())
    assert following.seconds == 20.0
    following.saved(stall=0.5, writing=3.0)
    assert 50.0 <= following.seconds <= first.seconds  # one failure more: not less often

    loop, model = make(folder, DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4))
    for batch in loop:
        loop.step(batch, lambda part: model(part[0]).mean())
    again, _ = make(folder, DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4))
    assert again._interval._stalls


def case_one_slow_save_does_not_put_off_the_next_ones(folder: Path) -> None:
    del folder
    interval = Interval(600.0)
    for stall in (0.001, 0.001, 1.0):
        interval.saved(stall, writing=0.01)
    usual = interval.seconds
    assert usual < 10.0

    after = Interval(600.0)
    after.interrupted(interval.state())
    assert after.seconds < 10.0
    after.saved(stall=1.0, writing=10.0)
    assert after.seconds < 10.0


def case_a_save_that_failed_is_tried_again_at_the_next_interval(folder: Path) -> None:
    data = DataLoader(TensorDataset(torch.ones(40, 4)), batch_size=4)
    loop, model = make(folder, data, epochs=1, lose_at_most=1e-9)
    checkpointer: Any = loop.checkpointer
    write = checkpointer._to_disk

    def fail(*_: object) -> None:
        raise OSError("no room")

    for batch in loop:
        loop.step(batch, lambda part: model(part[0]).mean())
        checkpointer.wait()
        if loop.steps == 4:
            assert (checkpointer.newest, checkpointer.failed) == (4, "")
            checkpointer._to_disk = fail
        if 5 <= loop.steps <= 7:
            assert checkpointer.newest == 4
            assert "no room" in checkpointer.failed
        if loop.steps == 7:
            raised = ""
            try:
                loop.save(wait=True)
            except rocsteady_train.CheckpointError as error:
                raised = str(error)
            assert "step 8 was not saved" in raised
            checkpointer._to_disk = write
        elif loop.steps == 8:
            checkpointer._to_disk = fail  # the last save fails too, and the script goes on
    assert loop.steps == 10
    assert checkpointer.newest == 8
    checkpointer.close()


def case_a_part_is_chosen_from_outside(folder: Path) -> None:
    os.environ["ROCSTEADY_MICRO_BATCH"] = "2"
    try:
        sizes = []
        loop, model = make(
            folder, DataLoader(TensorDataset(torch.rand(8, 4)), batch_size=4), epochs=1
        )
        micro_batches.log.disabled = True

        def compute(part: Any) -> Any:
            if torch.is_grad_enabled():
                sizes.append(len(part[0]))
            return model(part[0]).mean()

        for batch in loop:
            loop.step(batch, compute, reduction="mean")
        assert sizes == [2] * 4, sizes
    finally:
        del os.environ["ROCSTEADY_MICRO_BATCH"]
        micro_batches.log.disabled = False


def case_a_compiled_model_is_the_same_model(folder: Path) -> None:
    """With torch.compile switched off by a remedy, a checkpoint of the compiled model fits."""
    model = torch.nn.Linear(4, 1)
    compiled = torch.compile(model, backend="eager")
    first = rocsteady_train.Checkpointer(folder / "checkpoints")
    first.save(1, {"model": compiled}, wait=True)
    first.close()
    plain = torch.nn.Linear(4, 1)
    second = rocsteady_train.Checkpointer(folder / "checkpoints")
    assert second.restore({"model": plain}) == 1
    assert torch.equal(plain.weight, model.weight)
    second.close()
