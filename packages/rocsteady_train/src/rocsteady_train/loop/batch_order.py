"""A DataLoader that can go on in mid-epoch: the same batches, in the same order, without replay.

The order of an epoch follows from the generators' states when the epoch began, which are kept; the
batches that were trained are passed over by asking the sampler only. What a sample draws follows
from the seed of the run, the epoch and the sample's index, in whichever process it is loaded. So
the number of batches that were consumed is all that has to be known.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler

# They draw when they are asked for their first index, and from a generator of their own after it.
AT_ONCE = (
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
NO_PLACE = (
    "the data is iterated over and has no state_dict: after an interruption an epoch begins anew,"
    " and samples that were trained come again"
)


class BatchOrder:
    """The batches of a training, epoch by epoch."""

    def __init__(self, loader: Any, seed: int) -> None:  # noqa: ANN401 - any iterable
        self._loader = loader
        self._began: dict[str, Any] = {}  # states when the epoch began
        self._consumed = 0
        self.warning = ""  # what cannot be restored
        self._stateful = _has_state(loader)
        self._ours: _Batches | None = None
        if self._stateful:
            return
        if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
            self._loader, self._ours = _in_our_order(loader, seed)
        elif isinstance(loader, DataLoader) and loader.num_workers == 0:
            self._stateful = _has_state(loader.dataset)
        if not self._stateful and self._ours is None:
            self.warning = NO_PLACE

    def __len__(self) -> int:
        return len(self._loader)

    def reseed(self, seed: int) -> None:
        """Take the seed of the run that is gone on with."""
        if self._ours is not None:
            self._ours.seed = self._loader.dataset.seed = seed

    def epoch(self, number: int, state: dict[str, Any] | None = None) -> Iterator[Any]:
        """Yield the batches of an epoch, from where ``state`` says."""
        self._consumed = 0
        under_way = state is not None and state["began"]
        if state is not None and not under_way:
            set_generators(state["now"])
        if state is not None and under_way:
            self._began, self._consumed = state["began"], state["consumed"]
            self._set_generators(self._began)
        else:
            self._began = self._generators()
        _set_epoch(self._loader, number)
        if self._ours is not None:
            self._ours.begin(number, self._consumed)
        elif state is not None and self._stateful and state["loader"]:
            self._owner().load_state_dict(state["loader"])
        batches = iter(self._loader)
        if state is not None and under_way:
            set_generators(state["now"])
        for batch in batches:
            self._consumed += 1
            yield batch

    def state(self, *, ahead: bool = False) -> dict[str, Any]:
        """Return where the epoch is; ``ahead``: the last batch is handed out, and not used yet.

        A loader with a state of its own cannot go back by one: that batch is then left out.
        """
        return {
            "began": self._began,
            "consumed": self._consumed - ahead,
            "loader": self._owner().state_dict() if self._stateful else None,
            "now": generator_states(),
        }

    def between_epochs(self) -> dict[str, Any]:
        """Return the state before an epoch begins."""
        return {"began": {}, "consumed": 0, "loader": None, "now": generator_states()}

    def _owner(self) -> Any:  # noqa: ANN401 - a loader or a dataset
        return self._loader if _has_state(self._loader) else self._loader.dataset

    def _generators(self) -> dict[str, Any]:
        found: dict[str, Any] = {"global": generator_states()}
        for name, generator in self._own_generators():
            found[name] = generator.get_state()
        return found

    def _set_generators(self, found: dict[str, Any]) -> None:
        set_generators(found["global"])
        for name, generator in self._own_generators():
            if name in found:
                generator.set_state(found[name])

    def _own_generators(self) -> Iterator[tuple[str, Any]]:
        """Yield the generators that the user gave to the loader and its samplers."""
        seen = []
        batches = self._ours.original if self._ours is not None else None
        for name, owner in (
            ("loader", self._loader),
            ("batch sampler", batches),
            ("sampler", getattr(batches, "sampler", None)),
        ):
            generator = getattr(owner, "generator", None)
            if isinstance(generator, torch.Generator) and generator not in seen:
                seen.append(generator)
                yield name, generator


class _Batches:
    """The user's sampler, with the epoch beside each index, from a place on."""

    def __init__(self, original: Any, seed: int, *, single: bool) -> None:  # noqa: ANN401
        self.original = original
        self._single = single  # it yields an index at a time, and not a list of them
        self._rest: Iterator[Any] = iter(())
        self.seed = seed

    def __len__(self) -> int:
        return len(self.original)

    def begin(self, epoch: int, passed_over: int) -> None:
        """Draw the order of an epoch, once: a loader asks for an iterator once, or twice."""
        indexes = iter(self.original) if self._draws_at_once() else self._apart(epoch)
        for _ in range(passed_over):
            next(indexes, None)
        first = list(itertools.islice(indexes, 1))  # some draw when they are first asked
        self._rest = self._marked(epoch, itertools.chain(first, indexes))

    def __iter__(self) -> Iterator[Any]:
        return self._rest

    def _marked(self, epoch: int, indexes: Iterator[Any]) -> Iterator[Any]:
        for found in indexes:
            yield (epoch, found) if self._single else [(epoch, index) for index in found]

    def _draws_at_once(self) -> bool:
        if type(self.original) in AT_ONCE:
            return True
        return type(self.original) is BatchSampler and type(self.original.sampler) in AT_ONCE

    def _apart(self, epoch: int) -> Iterator[Any]:
        """Ask a sampler that may draw at any time, with generators of its own."""
        outside = generator_states()
        seed_generators(self.seed, epoch, "order")
        indexes = iter(self.original)
        while True:
            found = next(indexes, None)
            inside = generator_states()
            set_generators(outside)
            if found is None:
                return
            yield found
            outside = generator_states()
            set_generators(inside)


class _Seeded(Dataset):
    """The user's dataset; what a sample draws follows from seed, epoch and index."""

    def __init__(self, original: Any, seed: int) -> None:  # noqa: ANN401 - any dataset
        self.original = original
        self.seed = seed
        self._plain = type(original) is TensorDataset  # draws nothing, and is asked very often

    def __len__(self) -> int:
        return len(self.original)

    def __getitem__(self, place: tuple[int, Any]) -> Any:  # noqa: ANN401 - a sample
        return self.__getitems__([place])[0]

    def __getitems__(self, places: list[tuple[int, Any]]) -> Any:  # noqa: ANN401 - samples
        if self._plain:
            return [self.original[index] for _, index in places]
        outside = generator_states() if get_worker_info() is None else None
        try:
            return self._seeded(places)
        finally:
            if outside is not None:
                set_generators(outside)

    def _seeded(self, places: list[tuple[int, Any]]) -> Any:  # noqa: ANN401 - samples
        together = getattr(self.original, "__getitems__", None)
        if together:
            seed_generators(self.seed, *places[0])
            return together([index for _, index in places])
        samples = []
        for epoch, index in places:
            seed_generators(self.seed, epoch, index)
            samples.append(self.original[index])
        return samples


def _in_our_order(loader: Any, seed: int) -> tuple[Any, _Batches]:  # noqa: ANN401 - a DataLoader
    """Return a loader like this one, with our dataset and sampler in place of its own."""
    ours = copy.copy(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    batches = _Batches(getattr(loader, name), seed, single=name == "sampler")
    # A DataLoader refuses to have them changed, since one that is in use would not notice.
    object.__setattr__(ours, "dataset", _Seeded(loader.dataset, seed))
    object.__setattr__(ours, name, batches)
    ours._iterator = None  # noqa: SLF001 - of persistent workers, which the copy must not share
    return ours, batches


def _set_epoch(loader: Any, number: int) -> None:  # noqa: ANN401 - any iterable
    owners: tuple[Any, ...] = (
        loader,
        getattr(loader, "sampler", None),
        getattr(getattr(loader, "batch_sampler", None), "original", None),
        getattr(getattr(loader, "dataset", None), "original", None),
    )
    for owner in owners:
        if hasattr(owner, "set_epoch"):
            owner.set_epoch(number)


def _has_state(owner: Any) -> bool:  # noqa: ANN401 - any iterable
    return hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict")


def generator_states() -> dict[str, Any]:
    """Return the states of all generators. NumPy's takes 50 microseconds, the others 12."""
    found: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        found["numpy"] = sys.modules["numpy"].random.get_state(legacy=False)
    device = _accelerator()
    if device is not None:
        found["device"] = device.get_rng_state()
    return found


def set_generators(found: dict[str, Any]) -> None:
    random.setstate(found["python"])
    torch.set_rng_state(found["torch"])
    if "numpy" in found and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(found["numpy"])
    device = _accelerator()
    if "device" in found and device is not None:
        device.set_rng_state(found["device"])


def seed_generators(*words: object) -> None:
    """Seed the generators that a dataset may draw from, by what these words are.

    The device's is left alone: seeding it in a worker process would touch the device.
    """
    digest = hashlib.blake2b(repr(words).encode(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little")
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)


def _accelerator() -> Any:  # noqa: ANN401 - torch.cuda, or what there is instead
    if not torch.accelerator.is_available():
        return None
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    return module if module.is_initialized() else None
