"""Every probe, in the order a person should read the results. Not in this table, not run."""

from __future__ import annotations

import msgspec

from rocsteady.model import Value

FRESH_START = 1.9  # seconds: Python and torch, on a quiet machine with two cores
MIB = 1 << 20

LEVELS = (1, 2, 3)
BACKWARD, BATCHES = "backward passes", "batches"


class Probe(Value, frozen=True, kw_only=True):
    name: str
    variant: str = ""
    payload: str  # "module:function" of inside/payloads
    arguments: dict[str, object] = msgspec.field(default_factory=dict)
    level: int  # from which on it is run
    tries: tuple[int, int, int]  # at levels 1, 2 and 3
    seconds: tuple[float, float, float]  # at most, at those levels
    what: str = "tries"  # what a try is: "backward passes", "batches"
    gpus: int = 0  # at least
    patience: float = 10.0  # seconds without a try being done, after which it hangs
    first: float = 90.0  # the same for the first try: torch is imported, kernels are compiled

    @property
    def title(self) -> str:
        return f"{self.name} {self.variant}".rstrip()


def _kernel(
    name: str,
    *,
    level: int,
    seconds: tuple[float, float, float] = (0.2, 2.5, 30.0),
    gpus: int = 0,
    **variant: object,
) -> Probe:
    return Probe(
        name=name,
        variant=" ".join(map(str, variant.values())),
        payload=f"kernels:{name.replace('-', '_')}",
        arguments=variant,
        level=level,
        tries=(200, 2000, 20_000),
        seconds=seconds,
        what=BACKWARD,
        gpus=gpus,
    )


def _attention(backend: str, *, level: int) -> Probe:
    return _kernel("attention-backward", level=level, seconds=(0.2, 3.0, 45.0), backend=backend)


def _copies(variant: str, *, level: int, gpus: int = 0) -> Probe:
    return Probe(
        name="copies",
        variant=variant,
        payload="runtime:copies",
        arguments={"pinned": variant == "pinned", "bytes": 64 * MIB},
        level=level,
        tries=(4, 50, 500),
        seconds=(0.15, 1.5, 15.0),
        what="copies both ways",
        gpus=gpus,
    )


def _loader(workers: int, method: str = "", *, level: int, pinned: bool = False) -> Probe:
    words = [f"{workers} workers", method, "pinned" if pinned else ""]
    slow = method in ("forkserver", "spawn")  # each worker imports torch
    second = 1.0 + (FRESH_START * workers if slow else workers / 2)
    return Probe(
        name="loader",
        variant=", ".join(word for word in words if word),
        payload="runtime:loader",
        arguments={"workers": workers, "method": method, "pinned": pinned},
        level=level,
        tries=(400, 600, 20_000),
        seconds=(0.4 if workers else 0.1, second, 15.0 + second),
        what=BATCHES,
        gpus=1 if pinned else 0,
        patience=20.0,
        first=120.0,
    )


def _ranks(backend: str, *, level: int, seconds: tuple[float, float, float]) -> Probe:
    return Probe(
        name="ranks",
        variant=backend,
        payload="ranks:two_ranks",
        arguments={"backend": backend},
        level=level,
        tries=(100, 1000, 10_000),
        seconds=seconds,
        what="rounds",
        gpus=2 if backend == "nccl" else 0,
        patience=60.0,  # longer than a collective may take, so that its own error comes first
        first=120.0,
    )


PROBES: tuple[Probe, ...] = (
    Probe(
        name="import",
        payload="runtime:import_torch",
        level=1,
        tries=(1, 1, 1),
        seconds=(0.0, 0.0, 0.0),
        what="imports",
    ),
    Probe(
        name="device",
        payload="runtime:device_visible",
        level=1,
        tries=(1, 1, 1),
        seconds=(0.0, 0.0, 0.0),
    ),
    _copies("pageable", level=1),
    _copies("pinned", level=1, gpus=1),
    _kernel("matmul-gradient", precision="fp32", level=1),
    _kernel("matmul-gradient", precision="bf16", level=1),
    _kernel("matmul-gradient", precision="fp16", level=2),
    _kernel("matmul-gradient", precision="tf32", level=2, gpus=1),
    _kernel("convolution-gradient", level=1),
    _attention("math", level=1),
    _attention("efficient", level=2),
    _attention("flash", level=1),
    Probe(
        name="compile",
        payload="kernels:compiled",
        level=2,
        tries=(5, 50, 500),
        seconds=(15.0, 15.0, 30.0),
        what=BACKWARD,
        patience=60.0,
        first=300.0,
    ),
    _loader(0, level=1),
    _loader(2, "fork", level=1),
    _loader(4, "fork", level=2),
    _loader(2, "fork", level=2, pinned=True),
    _loader(2, "forkserver", level=2),
    _loader(4, "forkserver", level=3),
    _loader(2, "spawn", level=2),
    _loader(4, "spawn", level=3),
    _loader(2, "spawn", level=3, pinned=True),
    _ranks("nccl", level=1, seconds=(0.5, 3.0, 30.0)),
    _ranks("gloo", level=2, seconds=(0.5, 2.0, 20.0)),
)
