"""Parts become smaller and larger again, within bounds, and what was learned is remembered."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import math
import random
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import rocsteady
from rocsteady.errors import MicroBatchError
from rocsteady.training import micro_batches as module
from rocsteady.training.micro_batches import MicroBatches

logging.getLogger("rocsteady").addHandler(logging.NullHandler())
logging.getLogger("rocsteady").propagate = False
gc.freeze()  # what torch has made at its import need not be looked at after each failure
torch.manual_seed(1)
NET = nn.Linear(2, 1)
LACK = "HIP out of memory. Tried to allocate 124.00 MiB."


class Memory:
    """Room for so many samples; or an answer for each try, whatever its size."""

    def __init__(self, room: int = 0, answers: Iterator[bool] | None = None) -> None:
        self.room, self.answers = room, answers
        self.failures = 0

    def __call__(self, part: Any) -> torch.Tensor:
        if torch.is_grad_enabled():
            fits = len(part) <= self.room if self.answers is None else next(self.answers)
            if not fits:
                self.failures += 1
                raise torch.OutOfMemoryError(LACK)
        return NET(part).mean()


def step(parts: MicroBatches, memory: Memory, batch: int) -> None:
    """Train one batch as rocsteady.Loop does."""
    parts.backward(torch.ones(batch, 2), memory, zero=NET.zero_grad)
    if parts.size is not None:
        assert 1 <= parts.size <= batch
    if parts.wants_to_grow(batch):
        parts.grow()
        assert parts.size is not None
        assert 1 <= parts.size <= batch


def answers(chance: random.Random, fits: float) -> Iterator[bool]:
    while True:
        yield chance.random() < fits


def case_whatever_memory_answers_the_failures_are_bounded() -> dict[str, float]:
    # The bound: the first part, and each of MOST_TRIES larger ones, may be halved down to one.
    module.GROW_AFTER = 1
    ended, most = 0, 0.0
    for seed in range(150):
        chance = random.Random(seed)
        batch = chance.randint(1, 40)
        memory = Memory(answers=answers(chance, chance.choice((0.7, 0.97, 0.995))))
        parts = MicroBatches(NET)
        try:
            for _ in range(200):
                step(parts, memory, batch)
        except MicroBatchError as error:
            assert "single sample" in str(error)
            ended += 1
        bound = (module.MOST_TRIES + 1) * (math.ceil(math.log2(batch)) + 1)
        assert memory.failures <= bound
        most = max(most, memory.failures / bound)
    assert ended < 150
    return {"runs": 150, "ended": ended, "most failures, of the bound": round(most, 2)}


def case_what_fits_only_at_times_is_tried_seldom_and_then_no_more() -> int:
    module.GROW_AFTER = 4
    memory, parts = Memory(room=8), MicroBatches(NET)
    failed_at = []
    for number in range(2000):
        before = memory.failures
        step(parts, memory, 32)
        if memory.failures > before:
            failed_at.append(number)
    assert parts.size == 8
    assert len(failed_at) == 1 + module.MOST_TRIES
    gaps = [b - a for a, b in itertools.pairwise(failed_at)]
    assert gaps == [4, 8, 16, 32, 64]
    return failed_at[-1]


def case_it_grows_back_to_the_whole_batch() -> None:
    module.GROW_AFTER = 4
    memory, parts = Memory(room=3), MicroBatches(NET)
    step(parts, memory, 37)
    assert (parts.size, memory.failures) == (3, 4)  # 37, 19, 10, 5
    memory.room = 100
    for _ in range(40):
        step(parts, memory, 37)
    assert (parts.size, parts.trained, memory.failures) == (37, (37, 37), 4)


def case_it_does_not_grow_beyond_what_the_user_said() -> None:
    module.GROW_AFTER = 2
    memory, parts = Memory(room=4), MicroBatches(NET, 8)
    step(parts, memory, 32)
    assert parts.size == 4
    memory.room = 100
    for _ in range(30):
        step(parts, memory, 32)
    assert parts.size == 8
    plain = MicroBatches(NET, 8)
    for _ in range(30):
        step(plain, memory, 32)
    assert plain.size == 8


def learned() -> dict[str, Any]:
    module.GROW_AFTER = 50
    parts = MicroBatches(NET)
    for _ in range(5):
        step(parts, Memory(room=8), 32)
    return json.loads(json.dumps(parts.state_dict()))


def case_the_next_process_knows_what_was_learned() -> dict[str, Any]:
    state = learned()
    parts = MicroBatches(NET)
    parts.load_state_dict(state)
    assert parts.state_dict() == state
    memory = Memory(room=8)
    step(parts, memory, 32)
    assert (parts.size, memory.failures) == (8, 0)
    for said, size in ((4, 4), (8, 8), (16, 8)):
        parts = MicroBatches(NET, said)
        parts.load_state_dict(state)
        assert parts.size == size
    return state


def case_another_device_starts_anew() -> None:
    parts = MicroBatches(NET)
    parts.load_state_dict(learned() | {"device": "AMD Radeon RX 7900 XTX, 25753026560 bytes"})
    assert parts.state_dict() == MicroBatches(NET).state_dict()


def case_a_size_that_the_user_said_is_not_remembered() -> None:
    state = MicroBatches(NET, 4).state_dict()
    parts = MicroBatches(NET)
    parts.load_state_dict(state)
    assert parts.size is None


def case_a_try_that_ends_the_process_counts_as_failed() -> None:
    module.GROW_AFTER = 3
    parts, memory = MicroBatches(NET), Memory(room=8)
    tries = []
    while True:
        parts.backward(torch.ones(32, 2), memory, zero=NET.zero_grad)
        if parts.wants_to_grow(32):  # saved; then the larger part takes the machine down
            tries.append(parts.state_dict()["tries"])
            state, parts = parts.state_dict(), MicroBatches(NET)
            parts.load_state_dict(state)
            assert parts.size == 8
        if len(tries) == module.MOST_TRIES:
            break
    assert tries == [1, 2, 3, 4, 5]
    for _ in range(500):
        parts.backward(torch.ones(32, 2), memory, zero=NET.zero_grad)
        assert not parts.wants_to_grow(32)


def case_several_ranks_only_say_what_they_need() -> str:
    module.GROW_AFTER = 1
    parts = MicroBatches(NET, 16, alone=False)
    seen: MicroBatchError | None = None
    try:
        step(parts, Memory(room=8), 32)
    except MicroBatchError as error:
        seen = error
    assert seen is not None
    assert isinstance(seen.__cause__, torch.OutOfMemoryError)
    assert "micro_batch=8" in str(seen)
    parts = MicroBatches(NET, alone=False)
    parts.load_state_dict(learned())
    for _ in range(300):
        step(parts, Memory(room=100), 32)
    assert parts.size == 8
    return str(seen)


def training(folder: str, memory: Memory, epochs: int) -> rocsteady.Loop:
    net = NET
    loop = rocsteady.Loop(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.0),
        loader=torch.utils.data.DataLoader(torch.ones(32 * 8, 2), batch_size=32),
        epochs=epochs,
        checkpoints=folder,
    )
    for batch in loop:
        loop.step(batch, memory)
    return loop


def case_the_loop_remembers_and_grows() -> None:
    module.GROW_AFTER = 50
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(room=8)
        assert training(folder, memory, 1)._parts.size == 8
        assert memory.failures == 2
        memory = Memory(room=8)
        loop = training(folder, memory, 2)
        assert (loop.steps, loop._parts.size, memory.failures) == (16, 8, 0)
        module.GROW_AFTER = 5
        memory = Memory(room=32)
        loop = training(folder, memory, 4)
        assert (loop.steps, loop._parts.size, memory.failures) == (32, 32, 0)
