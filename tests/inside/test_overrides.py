"""Settings of DataLoaders, put in force on scripts that do not know of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rocsteady.hangs.heartbeat_pages import read_applied, read_loader_facts
from rocsteady.model import LoaderFacts

if TYPE_CHECKING:
    from tests.inside.conftest import Inside

pytestmark = pytest.mark.slow

BEGIN = """
    import json, os, sys, threading, time
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    class Numbers(Dataset):
        def __init__(self, count=12): self.count = count
        def __len__(self): return self.count
        def __getitem__(self, index): return torch.tensor([float(index)])
    class Stream(IterableDataset):
        def __iter__(self): return iter(torch.arange(6.0))

    def settings(loader):
        context = loader.multiprocessing_context
        return [loader.num_workers, loader.prefetch_factor, loader.persistent_workers,
                loader.timeout, context.get_start_method() if context else None]
    def values(loader): return [value for batch in loader for value in batch.flatten().tolist()]
"""


def facts(workers: int = 1, **other: Any) -> LoaderFacts:  # noqa: ANN401 - any field
    """Return what is told of forked workers of a guarded script, unless ``other`` differs."""
    usual = {"loaders": 1, "context": "fork", "pickles": None, "main_guarded": True}
    return LoaderFacts(workers=workers, **{**usual, **other})


def strategy(**settings: object) -> str:
    return json.dumps({"version": 1, **settings})


def outcomes(inside: Inside) -> list[tuple[str, str]]:
    return [(one.setting, one.outcome.value) for one in read_applied(inside.injection.pages)]


def why(inside: Inside, setting: str) -> str:
    told = [one.why for one in read_applied(inside.injection.pages) if one.setting == setting]
    (text,) = told
    return text


def ran(inside: Inside, python: str, text: str, **settings: object) -> Any:  # noqa: ANN401 - JSON
    """Run a script under a strategy, and give what it printed."""
    script = inside.script(BEGIN + text)
    done = inside.run(python, script, ROCSTEADY_STRATEGY=strategy(**settings))
    assert (done.code, done.err, inside.notes()) == (0, b"", "")
    return json.loads(done.out)


MANY = """
    class Own(DataLoader):
        def __init__(self, data, count): super().__init__(data, 2, False, num_workers=count)
    def remade(loader):  # as Accelerate and Lightning do it: from the attributes of another
        names = "num_workers", "prefetch_factor", "persistent_workers", "timeout", "pin_memory"
        return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler,
            multiprocessing_context=loader.multiprocessing_context,
            **{name: getattr(loader, name) for name in names})
    data = Numbers()
    loaders = {
        "by keyword": DataLoader(data, batch_size=2, num_workers=4, prefetch_factor=3,
            persistent_workers=True, timeout=60, multiprocessing_context="fork"),
        "by position": DataLoader(data, 2, False, None, None, 4, None, False, False, 60),
        "a subclass": Own(data, 4),
        "iterable": DataLoader(Stream(), num_workers=2),
        "none of its own": DataLoader(Numbers(), batch_size=2),
    }
    loaders["made again"] = remade(loaders["by keyword"])
    said = {name: [settings(one), values(one)] for name, one in loaders.items()}
    try: DataLoader(data, nonsense=1)
    except TypeError as error: said["wrong"] = "nonsense" in str(error)
    print(json.dumps(said))
"""


def test_no_workers_for_every_loader_however_it_was_made(inside: Inside, torch_python: str) -> None:
    said = ran(inside, torch_python, MANY, workers=0)

    assert said.pop("wrong")
    assert all(one[0] == [0, None, False, 0, None] for one in said.values())
    assert said["iterable"][1] == [0, 1, 2, 3, 4, 5]
    del said["iterable"]
    assert all(one[1] == [float(index) for index in range(12)] for one in said.values())
    assert outcomes(inside) == [("workers", "applied")]
    assert why(inside, "workers") == (
        "num_workers 2 -> 0; random numbers that the dataset draws are then the training's own;"
        " an iterable dataset may give other batches to another number of workers"
    )
    assert read_loader_facts(inside.injection.pages) == facts(4, loaders=6, main_guarded=False)


def test_fewer_workers_with_all_other_settings(inside: Inside, torch_python: str) -> None:
    said = ran(
        inside,
        torch_python,
        MANY,
        workers=1,
        worker_context="fork",
        persistent_workers=True,
        prefetch_factor=5,
    )

    assert said["by keyword"][0] == [1, 5, True, 60, "fork"]
    assert said["by position"][0] == [1, 5, True, 60, None]  # which is fork
    assert said["a subclass"][0] == said["iterable"][0] == [1, 5, True, 0, None]
    assert said["none of its own"][0] == [0, None, False, 0, None]
    assert outcomes(inside) == [
        ("worker_context", "no effect"),
        ("workers", "applied"),
        ("prefetch_factor", "applied"),
        ("persistent_workers", "applied"),
    ]


def test_what_finds_nothing_to_act_on_has_no_effect(inside: Inside, torch_python: str) -> None:
    text = "\n    print(json.dumps(values(DataLoader(Numbers(4)))))\n"

    assert ran(inside, torch_python, text, workers=0, attention="math") == [0, 1, 2, 3]
    assert outcomes(inside) == [("workers", "no effect"), ("attention", "no effect")]


GUARDED = """
    def collate(batch): return torch.stack(batch)
    def start(worker): pass
    def main(**more):
        loader = DataLoader(Numbers(), batch_size=4, num_workers=1, **more)
        print(json.dumps([settings(loader)[4], values(loader)]))
"""
WHOLE = [float(index) for index in range(12)]


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_another_start_of_workers(inside: Inside, torch_python: str, context: str) -> None:
    main = """
    if __name__ == "__main__":
        main(collate_fn=collate, worker_init_fn=start)
    """
    said = ran(inside, torch_python, GUARDED + main, worker_context=context)

    assert said == [context, WHOLE]
    assert outcomes(inside) == [("worker_context", "applied")]
    assert read_loader_facts(inside.injection.pages) == facts(pickles=True)


@pytest.mark.parametrize(
    "main",
    [
        "main()",
        """
    if __name__ == "__main__":
        pass
    main()""",
    ],
    ids=["no guard", "another"],
)
def test_another_start_is_refused_where_the_main_module_is_not_guarded(
    inside: Inside, torch_python: str, main: str
) -> None:
    said = ran(inside, torch_python, GUARDED + "    " + main, worker_context="spawn")

    assert said == [None, WHOLE]
    assert outcomes(inside) == [("worker_context", "refused")]
    assert why(inside, "worker_context").startswith("the main module has no `if __name__")


NOT_PICKLED = """
    class Slow:
        def __reduce__(self): time.sleep(0.5); return (Slow, ())
    class Holds(Numbers):
        def __init__(self, make): self.make = make
        def __getstate__(self): return self.make()
    def reason(*args, **more):
        loader = DataLoader(*args, num_workers=1, **more)
        assert loader.multiprocessing_context is None
        with open(f"{os.environ['ROCSTEADY_PAGES']}/{os.getpid()}.applied") as stream:
            return json.load(stream)["told"][0]["why"]
    if __name__ == "__main__":
        print(json.dumps([
            reason(Numbers(), collate_fn=lambda batch: torch.stack(batch)),
            reason(Numbers(), worker_init_fn=lambda worker: None),
            reason(Holds(threading.Lock)),
            reason(Holds(lambda: bytes(257 << 20))),
            reason(Holds(lambda: [Slow() for _ in range(100)])),
            reason(Holds(lambda: torch.ones(1, requires_grad=True) * 2)),
        ]))
"""


def test_another_start_is_refused_where_something_cannot_be_pickled(
    inside: Inside, torch_python: str
) -> None:
    said = ran(inside, torch_python, NOT_PICKLED, worker_context="spawn")

    for text, begin in zip(
        said,
        [
            "collate_fn cannot be pickled: ",
            "worker_init_fn cannot be pickled: ",
            "dataset cannot be pickled: TypeError: cannot pickle '_thread.lock'",
            "dataset is too large to be sent to each worker: more than 256 MiB",
            "dataset is too large to be sent to each worker: more than 2 s of pickling",
            "dataset cannot be pickled: ValueError: a tensor in it is part of a graph",
        ],
        strict=True,
    ):
        assert text.startswith(begin)
    assert outcomes(inside) == [("worker_context", "refused")]
    assert read_loader_facts(inside.injection.pages) is None  # none was iterated over


def test_tensors_are_not_copied_to_see_whether_they_can_be_sent(
    inside: Inside, torch_python: str
) -> None:
    main = """
    import resource
    if __name__ == "__main__":
        data = Numbers(); data.large = torch.zeros(1 << 28)  # 1 GiB, not touched
        data.large[0] = 1
        loader = DataLoader(data, batch_size=4, num_workers=1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(json.dumps([loader.multiprocessing_context.get_start_method(), peak < 1 << 12]))
    """
    assert ran(inside, torch_python, GUARDED + main, worker_context="spawn") == ["spawn", True]


@pytest.mark.parametrize(
    "text", ['{"version": 2, "workers": 0}', '{"version": 1, "workers": 0, "colour": 1}', "x"]
)
def test_a_strategy_that_is_not_understood_is_not_applied_and_a_note_says_so(
    inside: Inside, torch_python: str, text: str
) -> None:
    script = "\n    print(DataLoader(Numbers(), num_workers=1).num_workers)\n"

    done = inside.run(torch_python, inside.script(BEGIN + script), ROCSTEADY_STRATEGY=text)

    assert done == (0, b"1\n", b"")
    assert inside.notes().startswith("the strategy is not applied: ")
    assert outcomes(inside) == []


def test_without_a_strategy_nothing_of_it_is_imported_or_wrapped(
    inside: Inside, torch_python: str
) -> None:
    script = """
    import torch.nn.functional as F
    print([name for name in sys.modules if name.startswith("_rocsteady_inside.overrides")])
    things = (DataLoader.__init__, torch.autocast.__init__, torch.compile, torch.nn.Module.compile,
        torch.nn.Module.__call__, torch.autograd.grad,
        F.scaled_dot_product_attention, torch._C._set_sdp_use_flash)
    print([getattr(thing, "__wrapped__", None) for thing in things])
    loader = DataLoader(Numbers(), num_workers=1); values(loader)
    print([name for name in vars(loader) if "rocsteady" in name])
    """
    done = inside.run(torch_python, inside.script(BEGIN + script))

    assert done == (0, f"[]\n{[None] * 8}\n[]\n".encode(), b"")
    assert outcomes(inside) == []


FACTS = {
    "no workers": (
        "values(DataLoader(Numbers()))",
        facts(0, context="", main_guarded=None),
    ),
    "workers": (
        """
    if __name__ == "__main__":
        values(DataLoader(Numbers(), num_workers=1))
        values(DataLoader(Numbers(), num_workers=2, multiprocessing_context="spawn"))""",
        facts(2, loaders=2, context="spawn"),
    ),
    "workers that persist": (
        """
    if __name__ == "__main__":
        values(DataLoader(Numbers(), num_workers=1, persistent_workers=True))
        values(DataLoader(Numbers(), num_workers=1))""",
        facts(loaders=2, persistent=True),
    ),
    "one line": (
        """
    def main(): values(DataLoader(Stream(), num_workers=1))
    if '__main__' == __name__: main()""",
        facts(),
    ),
}


@pytest.mark.parametrize("case", FACTS)
def test_facts_of_loaders_are_told_without_a_strategy(
    inside: Inside, torch_python: str, case: str
) -> None:
    text, told = FACTS[case]

    done = inside.run(torch_python, inside.script(BEGIN + "    " + text))

    assert (done, inside.notes()) == ((0, b"", b""), "")
    assert read_loader_facts(inside.injection.pages) == told


def test_ranks_apply_it_and_loader_workers_do_not(inside: Inside, torch_python: str) -> None:
    script = """
    class Inner(Numbers):
        def __getitem__(self, index):
            return torch.tensor([float(DataLoader(Numbers(), num_workers=3).num_workers)])
    def rank(index):
        print(index, values(DataLoader(Inner(2), num_workers=2)), flush=True)
    if __name__ == "__main__":
        torch.multiprocessing.spawn(rank, nprocs=2)
    """
    path = inside.script(BEGIN + script)
    done = inside.run(torch_python, path, ROCSTEADY_STRATEGY=strategy(workers=1))

    assert (done.code, inside.notes()) == (0, "")
    assert sorted(done.out.splitlines()) == [b"0 [3.0, 3.0]", b"1 [3.0, 3.0]"]
    assert outcomes(inside) == [("workers", "applied")] * 2


def test_a_forked_process_tells_what_it_applied_itself(inside: Inside, torch_python: str) -> None:
    script = """
    DataLoader(Numbers(), num_workers=2); DataLoader(Numbers(), num_workers=2)
    if os.fork() == 0:
        DataLoader(Numbers(), num_workers=2); os._exit(0)
    os.wait()
    """
    path = inside.script(BEGIN + script)
    done = inside.run(torch_python, path, ROCSTEADY_STRATEGY=strategy(workers=0))

    assert (done.code, inside.notes()) == (0, "")
    assert outcomes(inside) == [("workers", "applied")] * 2
