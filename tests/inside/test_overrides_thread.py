"""The thread that loads ahead: batches, random streams and errors as without it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rocsteady.evidence.heartbeat_pages import read_applied, read_loader_facts

if TYPE_CHECKING:
    from tests.inside.conftest import Inside

pytestmark = pytest.mark.slow

THREAD = json.dumps({"version": 1, "workers": 0, "loader_thread": True})
IN_TURN = "batches are loaded in turn, without the thread"
NO_THREAD = json.dumps({"version": 1, "workers": 0})

BEGIN = """
    import gc, hashlib, json, os, random, sqlite3, sys, threading, time
    import numpy as np
    import torch
    from torch.utils.data import (DataLoader, Dataset, IterableDataset, RandomSampler, Sampler,
        TensorDataset, WeightedRandomSampler)

    class Decoded(Dataset):
        def __init__(self, count=30): self.count = count
        def __len__(self): return self.count
        def __getitem__(self, index):
            values = torch.arange(40_000.0) * (index + 1)
            return values.sin().sum().reshape(1), torch.tensor([float(index)])
    class Draws(Decoded):
        def __init__(self, draw, count=30): self.count, self.draw = count, draw
        def __getitem__(self, index): return torch.tensor([float(index) + self.draw()])
    class Where(Decoded):
        def __getitem__(self, index):
            return torch.tensor([threading.current_thread() is threading.main_thread()])

    def digest(batch):
        parts = batch if isinstance(batch, (list, tuple)) else [batch]
        return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()[:8]
    def streams(): return [torch.rand(1).item(), random.random(), float(np.random.rand())]
    def seed(): torch.manual_seed(1); random.seed(1); np.random.seed(1)
    def threads(): return sum(thread.name == "loads ahead" for thread in threading.enumerate())
    said = {}
    def case(function):
        seed(); said[function.__name__] = function()
"""


def run(inside: Inside, python: str, text: str, strategy: str) -> Any:  # noqa: ANN401 - JSON
    """Run a script under a strategy, and give what it printed."""
    done = inside.run(python, inside.script(BEGIN + text), ROCSTEADY_STRATEGY=strategy)
    assert (done.code, done.err, inside.notes()) == (0, b"", "")
    return json.loads(done.out)


EPOCHS = """
    def epochs(loader, count=2):
        told = []
        for _ in range(count):
            for batch in loader:
                told.append([digest(batch), streams()])  # the training draws too
            told.append(streams())
        return told
    def loader(data, **more): return DataLoader(data, batch_size=4, num_workers=2, **more)

    @case
    def in_order(): return epochs(loader(Decoded()))
    @case
    def shuffled(): return epochs(loader(Decoded(), shuffle=True))
    @case
    def with_a_generator():
        return epochs(loader(Decoded(), shuffle=True, generator=torch.Generator().manual_seed(3)))
    @case
    def dropping_the_last(): return epochs(loader(Decoded(), shuffle=True, drop_last=True))
    @case
    def weighted():
        return epochs(loader(Decoded(), sampler=WeightedRandomSampler(torch.ones(30), 30)))
    @case
    def with_replacement():
        return epochs(loader(Decoded(), sampler=RandomSampler(range(30), replacement=True,
            num_samples=100)))
    @case
    def without_batches(): return epochs(DataLoader(Decoded(9), batch_size=None, num_workers=2))
    @case
    def of_one_batch(): return epochs(loader(Decoded(3)))
    @case
    def of_no_batch(): return epochs(loader(Decoded(0)))
    @case
    def two_at_once():
        return [[digest(one), digest(two), streams()] for one, two in
            zip(loader(Decoded()), loader(Decoded(20)))]
    @case
    def a_list(): return epochs(loader([torch.tensor([float(value)]) for value in range(20)]))
"""
DRAWING = """
    @case
    def from_torch(): return epochs(loader(Draws(lambda: torch.rand(1).item())))
    @case
    def from_numpy(): return epochs(loader(Draws(np.random.rand)))
    @case
    def from_python(): return epochs(loader(Draws(random.random), shuffle=True))
    @case
    def by_the_sampler():
        class Drawn(Sampler):
            def __len__(self): return 30
            def __iter__(self): return (random.randrange(30) for _ in range(30))
        return epochs(loader(Draws(float), sampler=Drawn()))
    @case
    def once_late_by_the_sampler():
        class Late(Sampler):
            def __len__(self): return 30
            def __iter__(self):
                for index in range(30): yield random.randrange(30) if index == 29 else index
        return [digest(batch) for batch in loader(Draws(float), sampler=Late())]
    @case
    def iterable():
        class Stream(IterableDataset):
            def __iter__(self): return iter(torch.rand(6))
        return epochs(loader(Stream()))
    print(json.dumps(said))
"""


def test_batches_and_random_streams_are_bitwise_the_same(inside: Inside, torch_python: str) -> None:
    whole = EPOCHS + DRAWING
    ahead = run(inside, torch_python, whole, THREAD)
    applied = [one for one in read_applied(inside.injection.pages) if one.setting != "workers"]
    in_turn = run(inside, torch_python, whole, NO_THREAD)
    end = "    print(json.dumps(said))"
    workers = json.loads(inside.run(torch_python, inside.script(BEGIN + EPOCHS + end)).out)

    assert {name: ahead[name] for name in workers} == workers
    assert {name: ahead[name] for name in ahead if name not in workers} == {
        name: in_turn[name] for name in in_turn if name not in workers
    }
    assert _streams(ahead) == _streams(in_turn)  # batches may differ: workers compute on one core
    assert [(one.outcome, one.times) for one in applied] == [("applied", 11), ("refused", 6)]
    facts = read_loader_facts(inside.injection.pages)
    assert facts is not None
    assert facts.draws is True


def _streams(told: Any) -> Any:  # noqa: ANN401 - JSON
    """Leave out the digests of batches."""
    if isinstance(told, dict):
        return {name: _streams(value) for name, value in told.items()}
    if isinstance(told, list):
        return [_streams(value) for value in told if not isinstance(value, str)]
    return told


LOOK = """
    def ran_in(loader): return [bool(batch.any()) for batch in loader]
    def loader(data, **more): return DataLoader(data, batch_size=2, num_workers=2, **more)
    def reason():
        with open(f"{os.environ['ROCSTEADY_PAGES']}/{os.getpid()}.applied") as stream:
            return [one["why"] for one in json.load(stream)["told"]
                if one["setting"] == "loader_thread" and one["outcome"] == "refused"][-1]
    def until(true):
        deadline = time.monotonic() + 30
        while not true() and time.monotonic() < deadline: time.sleep(0.01)
        return true()

    @case
    def every_batch_is_loaded_elsewhere():
        data = loader(Where(12)); return [ran_in(data), ran_in(data)]
    @case
    def a_dataset_that_draws_is_loaded_in_turn():
        class Both(Where):
            def __getitem__(self, index): random.random(); return super().__getitem__(index)
        data = loader(Both(8))
        return [ran_in(data), ran_in(data), until(lambda: not threads()), reason()]
    @case
    def a_dataset_that_only_its_own_thread_may_use():
        database = sqlite3.connect(":memory:")
        class Rows(Where):
            def __getitem__(self, index):
                database.execute("select 1"); return super().__getitem__(index)
        return [ran_in(loader(Rows(8))), reason()]
    @case
    def under_a_default_device():
        with torch.device("cpu"): return [ran_in(loader(Where(8))), reason()]
    @case
    def not_further_ahead_than_the_workers_were():
        asked = []
        class Noting(Sampler):
            def __len__(self): return 20
            def __iter__(self):
                for index in range(20): asked.append(index); yield index
        data = DataLoader(Decoded(20), sampler=Noting(), num_workers=1, prefetch_factor=2)
        for _, _ in zip(range(10), data): pass
        return len(asked)
    @case
    def a_loop_that_breaks_leaves_no_thread():
        data = loader(Decoded(60))
        for number, batch in enumerate(data):
            if number == 5: break
        del batch
        return [threads() <= 1, until(lambda: not threads()), len(list(data))]
    @case
    def an_iterator_that_is_let_go():
        before = []
        class Noting(Decoded):
            def __getitem__(self, index): before.append(index); return torch.zeros(1)
        made = iter(loader(Noting(400)))
        for _ in range(3): next(made)
        del made; gc.collect()
        return [until(lambda: not threads()), len(before) < 20]
    @case
    def a_loader_in_a_dataset():
        class Outer(Dataset):
            def __init__(self): self.inner = loader(Decoded(8))
            def __len__(self): return 8
            def __getitem__(self, index): return torch.tensor([float(len(list(self.inner)))])
        return [batch.flatten().tolist() for batch in loader(Outer())]
    @case
    def never_two_at_a_time():
        busy = []
        class Alone(Decoded):
            def __getitem__(self, index):
                busy.append(1); time.sleep(0.001); count = len(busy); busy.pop()
                return torch.tensor([count])
        pairs = zip(loader(Alone()), loader(Alone()))
        return max(int(one.max()) for pair in pairs for one in pair)
    @case
    def the_number_of_threads_of_others_stays():
        torch.set_num_threads(2); told = []
        class Told(Decoded):
            def __getitem__(self, index): return torch.tensor([torch.get_num_threads()])
        inside = {int(value) for batch in loader(Told(8)) for value in batch}
        other = threading.Thread(target=lambda: told.append(torch.get_num_threads()))
        other.start(); other.join()
        return [sorted(inside), told, torch.get_num_threads()]
    print(json.dumps(said))
"""


def test_what_is_loaded_where_and_what_is_left(inside: Inside, torch_python: str) -> None:
    assert run(inside, torch_python, LOOK, THREAD) == {
        "every_batch_is_loaded_elsewhere": [[False] * 6] * 2,
        "a_dataset_that_draws_is_loaded_in_turn": [
            [False, True, True, True],
            [True] * 4,
            True,
            f"the dataset draws from random; {IN_TURN}",
        ],
        "a_dataset_that_only_its_own_thread_may_use": [
            [True] * 4,
            f"the dataset fails in another thread; {IN_TURN}",
        ],
        "under_a_default_device": [
            [True] * 4,
            f"a mode of torch, such as a default device, holds in one thread; {IN_TURN}",
        ],
        "not_further_ahead_than_the_workers_were": 12,
        "a_loop_that_breaks_leaves_no_thread": [True, True, 30],
        "an_iterator_that_is_let_go": [True, True],
        "a_loader_in_a_dataset": [[4.0, 4.0]] * 4,
        "never_two_at_a_time": 1,
        "the_number_of_threads_of_others_stays": [[1], [2], 2],
    }


FAILING = """
    class Bad(Decoded):
        def __getitem__(self, index):
            if index == 13: raise KeyError(index)
            return torch.tensor([float(index)])
    class BadSampler(Sampler):
        def __len__(self): return 12
        def __iter__(self):
            yield from range(9); raise OSError("no more")
    class End(Decoded):
        def __getitem__(self, index):
            if index == 13: raise SystemExit(4)
            return torch.tensor([float(index)])
"""


@pytest.mark.parametrize("strategy", [THREAD, NO_THREAD])
def test_errors_come_up_at_their_batch_as_without_the_thread(
    inside: Inside, torch_python: str, strategy: str
) -> None:
    script = """
    def told(loader):
        seen, made = [], iter(loader)
        while True:
            try: seen.append(int(next(made)[0]))
            except StopIteration: return seen
            except BaseException as error: seen.append(repr(error))
    print(json.dumps([told(DataLoader(data, num_workers=2, **more)) for data, more in [
        (Bad(16), {}), (Decoded(12), {"sampler": BadSampler(), "collate_fn": lambda one: [1]}),
        (End(15), {}), (Bad(15), {"batch_size": 4, "collate_fn": lambda some: [len(some)]})]]))
    """
    said = run(inside, torch_python, FAILING + script, strategy)

    assert said == [
        [*range(13), "KeyError(13)", 14, 15],
        [1] * 9 + ["OSError('no more')"],
        [*range(13), "SystemExit(4)", 14],
        [4, 4, 4, "KeyError(13)"],
    ]


@pytest.mark.parametrize(
    ("data", "code", "last"),
    [
        ("DataLoader(Bad(16), num_workers=2)", 1, b"KeyError: 13"),
        ("DataLoader(Decoded(12), sampler=BadSampler(), num_workers=2)", 1, b"OSError: no more"),
        ("DataLoader(End(16), num_workers=2)", 4, b""),
    ],
)
def test_a_script_that_fails_ends_with_its_own_traceback(
    inside: Inside, torch_python: str, data: str, code: int, last: bytes
) -> None:
    script = inside.script(BEGIN + FAILING + f"    for batch in {data}: pass\n")

    done = inside.run(torch_python, script, ROCSTEADY_STRATEGY=THREAD)

    assert (done.code, inside.notes()) == (code, "")
    assert done.err.strip().endswith(last)
    assert b"rocsteady" not in done.err
    assert b"Thread" not in done.err
    assert done.err.count(b"Traceback") == (code == 1)


EXITS = {
    "in the middle": "for _, batch in zip(range(6), loader): pass",
    "by an error": "for _, batch in zip(range(6), loader): pass\n    raise ValueError",
    "by sys.exit": "for _, batch in zip(range(6), loader): pass\n    sys.exit(3)",
    "while it computes": "for batch in loader: break\n    made = iter(loader); next(made)",
    "in a thread that trains": """
    def train():
        for _, batch in zip(range(6), loader): pass
    threading.Thread(target=train).start()""",
}


@pytest.mark.parametrize("how", EXITS)
def test_the_thread_ends_cleanly_with_the_script(
    inside: Inside, torch_python: str, how: str
) -> None:
    script = inside.script(
        BEGIN
        + """
    class Slow(Decoded):
        def __getitem__(self, index):
            values = torch.randn(400, 400, generator=torch.Generator().manual_seed(index))
            for _ in range(20): values = values @ values / 20
            return values
    loader = DataLoader(Slow(400), batch_size=4, num_workers=2)
    made = iter(loader); next(made); next(made); next(made)
    """
        + EXITS[how]
    )

    done = inside.run(torch_python, script, ROCSTEADY_STRATEGY=THREAD)

    assert done.code == {"by an error": 1, "by sys.exit": 3}.get(how, 0)
    assert (done.err.endswith(b"ValueError\n") or not done.err, inside.notes()) == (True, "")


def test_forks_find_no_batch_half_loaded_and_go_on_by_themselves(
    inside: Inside, torch_python: str
) -> None:
    script = """
    import warnings; warnings.simplefilter("ignore")  # newer Pythons speak of threads and forks
    lock = threading.Lock()
    class Locked(Decoded):
        def __getitem__(self, index):
            with lock: time.sleep(0.005)
            return torch.tensor([float(index)])
    made = iter(DataLoader(Locked(40), num_workers=4))
    first = [int(next(made)) for _ in range(10)]
    for _ in range(5):
        sys.stdout.flush()
        if os.fork() == 0:
            free = lock.acquire(timeout=1); lock.release()
            again = DataLoader(Locked(6), num_workers=2)
            rest = [int(value) for value in made]
            print(json.dumps([free, rest, [int(value) for value in again]]), flush=True)
            os._exit(0)
        os.wait()
        time.sleep(0.003)
    assert first + [int(value) for value in made] == list(range(40))
    """
    path = inside.script(BEGIN + script)
    done = inside.run(torch_python, path, ROCSTEADY_STRATEGY=THREAD)

    assert (done.code, done.err, inside.notes()) == (0, b"", "")
    told = [json.loads(line) for line in done.out.splitlines()]
    assert told == [[True, list(range(10, 40)), list(range(6))]] * 5
