"""One question, and how it is put."""

from __future__ import annotations

import msgspec

from rocsteady.model import Value

LEVELS = (1, 2, 3)


class Probe(Value, frozen=True, kw_only=True):
    """A small experiment."""

    name: str
    variant: str = ""
    payload: str  # "module:function" of inside/payloads
    arguments: dict[str, object] = msgspec.field(default_factory=dict)
    question: str  # as a person would ask it
    level: int  # from which on it is run
    tries: tuple[int, int, int]  # at levels 1, 2 and 3
    seconds: tuple[float, float, float]  # at most, at those levels
    what: str = "tries"  # what a try is: "backward passes", "batches"
    fresh: bool = False  # it needs a process of its own from the start
    gpus: int = 0  # at least
    risky: bool = False  # on some machines it has reset a GPU, or taken the machine down
    patience: float = 10.0  # seconds without a try being done, after which it hangs
    first: float = 60.0  # the same for the first try, in which kernels are compiled

    @property
    def title(self) -> str:
        """Name and variant."""
        return f"{self.name} {self.variant}".rstrip()
