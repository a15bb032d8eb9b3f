"""Every probe, in the order a person should read the results. Not in this table, not run."""

from __future__ import annotations

import msgspec

from rocsteady.model import Value

FRESH_START = 1.9  # seconds: Python and torch, on a quiet machine with two cores
FORK_START = 0.05  # until the first try
MIB = 1 << 20

LEVELS = (1, 2, 3)
BACKWARD, BATCHES, STEPS = "backward passes", "batches", "steps"


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


def _matmul(precision: str, *, level: int, gpus: int = 0) -> Probe:
    return Probe(
        name="matmul-gradient",
        variant=precision,
        payload="kernels:matmul_gradient",
        arguments={"precision": precision},
        question=f"Are matrix products and their gradients correct in {precision}?",
        level=level,
        tries=(200, 2000, 20_000),
        seconds=(0.2, 2.5, 30.0),
        what=BACKWARD,
        gpus=gpus,
    )


def _attention(backend: str, *, level: int) -> Probe:
    return Probe(
        name="attention-backward",
        variant=backend,
        payload="kernels:attention_backward",
        arguments={"backend": backend},
        question=(
            f"Do the forward and backward passes of attention work with the {backend} kernel?"
        ),
        level=level,
        tries=(200, 2000, 20_000),
        seconds=(0.2, 3.0, 45.0),
        what=BACKWARD,
    )


def _copies(variant: str, *, level: int, gpus: int = 0) -> Probe:
    return Probe(
        name="copies",
        variant=variant,
        payload="runtime:copies",
        arguments={"pinned": variant == "pinned", "bytes": 64 * MIB},
        question=f"Do {variant} copies reach the device and come back the same, and how fast?",
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
        question="Do batches keep coming?",
        level=level,
        tries=(400, 600, 20_000),
        seconds=(0.4 if workers else 0.1, second, 15.0 + second),
        what=BATCHES,
        fresh=workers > 0,
        gpus=1 if pinned else 0,
        patience=20.0,
        first=120.0,
    )


def _ranks(
    variant: str, backend: str, what: str, *, level: int, seconds: tuple[float, float, float]
) -> Probe:
    return Probe(
        name="ranks",
        variant=variant,
        payload="ranks:two_ranks",
        arguments={"backend": backend, "what": what},
        question=f"Do two ranks agree over {backend}?",
        level=level,
        tries=(100, 1000, 10_000),
        seconds=seconds,
        what="rounds" if what == "collectives" else STEPS,
        fresh=True,
        gpus=2 if backend == "nccl" else 0,
        patience=60.0,  # longer than a collective may take, so that its own error comes first
        first=120.0,
    )


PROBES: tuple[Probe, ...] = (
    Probe(
        name="import",
        payload="runtime:import_torch",
        question="Can torch be imported?",
        level=1,
        tries=(1, 1, 1),
        seconds=(0.0, 0.0, 0.0),
        what="imports",
        fresh=True,
    ),
    Probe(
        name="device",
        payload="runtime:device_visible",
        question="Does torch see a GPU?",
        level=1,
        tries=(1, 1, 1),
        seconds=(0.0, 0.0, 0.0),
    ),
    _copies("pageable", level=1),
    _copies("pinned", level=1, gpus=1),
    _matmul("fp32", level=1),
    _matmul("bf16", level=1),
    _matmul("fp16", level=2),
    _matmul("tf32", level=2, gpus=1),
    Probe(
        name="convolution-gradient",
        payload="kernels:convolution_gradient",
        question="Are convolutions and their gradients correct?",
        level=1,
        tries=(200, 2000, 20_000),
        seconds=(0.2, 2.5, 30.0),
        what=BACKWARD,
    ),
    _attention("math", level=1),
    _attention("efficient", level=2),
    _attention("flash", level=1),
    Probe(
        name="transformer",
        payload="models:transformer",
        question="Does a small transformer learn?",
        level=2,
        tries=(30, 500, 10_000),
        seconds=(1.0, 4.0, 60.0),
        what=STEPS,
    ),
    Probe(
        name="actor-critic",
        payload="models:actor_critic",
        question="Does an actor-critic with attention learn, with 2.9 million parameters?",
        level=2,
        tries=(30, 300, 5000),
        seconds=(2.0, 6.0, 60.0),
        what=STEPS,
    ),
    Probe(
        name="mixed-precision",
        payload="models:mixed_precision",
        question="Do autocast and GradScaler work, also when a gradient is infinite?",
        level=2,
        tries=(30, 500, 10_000),
        seconds=(0.5, 2.5, 20.0),
        what=STEPS,
    ),
    Probe(
        name="embedding",
        payload="kernels:embedding",
        question="Are the gradients of an embedding correct?",
        level=2,
        tries=(50, 500, 5000),
        seconds=(0.2, 1.5, 15.0),
        what=BACKWARD,
    ),
    Probe(
        name="scatter",
        payload="kernels:scatter",
        question="Do scatter_add and index_add lose nothing?",
        level=2,
        tries=(50, 500, 5000),
        seconds=(0.2, 1.5, 15.0),
    ),
    Probe(
        name="multinomial",
        payload="kernels:multinomial",
        question="Does multinomial draw from the right distribution?",
        level=2,
        tries=(50, 500, 5000),
        seconds=(0.2, 1.5, 15.0),
        what="drawings",
    ),
    Probe(
        name="multinomial",
        variant="invalid",
        payload="kernels:multinomial_invalid",
        question="Is a negative probability rejected, or does the GPU hang?",
        level=3,
        tries=(10, 100, 1000),
        seconds=(0.1, 0.5, 2.0),
        what="drawings",
        risky=True,
    ),
    Probe(
        name="compile",
        payload="kernels:compiled",
        question="Does torch.compile give the same numbers?",
        level=2,
        tries=(5, 50, 500),
        seconds=(15.0, 15.0, 30.0),
        what=BACKWARD,
        fresh=True,
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
    Probe(
        name="churn",
        payload="runtime:churn",
        question="Do memory blocks stay intact when allocated and freed at random?",
        level=2,
        tries=(100, 2000, 50_000),
        seconds=(0.5, 2.5, 45.0),
        what="blocks",
    ),
    Probe(
        name="largest-block",
        payload="runtime:largest",
        question="How much of the free memory can be allocated in one block?",
        level=3,
        tries=(1, 1, 3),
        seconds=(1.0, 2.0, 10.0),
        what="searches",
        risky=True,  # it takes all that is free, where a screen may need some
        patience=30.0,
    ),
    _ranks("nccl", "nccl", "collectives", level=1, seconds=(0.5, 3.0, 30.0)),
    _ranks("gloo", "gloo", "collectives", level=2, seconds=(0.5, 2.0, 20.0)),
    _ranks("DDP, gloo", "gloo", "ddp", level=2, seconds=(2.0, 5.0, 30.0)),
    _ranks("DDP, nccl", "nccl", "ddp", level=2, seconds=(2.0, 5.0, 30.0)),
    _ranks("FSDP, gloo", "gloo", "fsdp", level=2, seconds=(2.0, 5.0, 30.0)),
    _ranks("FSDP, nccl", "nccl", "fsdp", level=2, seconds=(2.0, 5.0, 30.0)),
    Probe(
        name="ranks",
        variant="DataParallel",
        payload="ranks:data_parallel",
        question="Does one process with two GPUs get the gradients of one?",
        level=2,
        tries=(50, 500, 5000),
        seconds=(1.0, 3.0, 30.0),
        what=BACKWARD,
        gpus=2,
    ),
    Probe(
        name="checkpoint-write",
        payload="runtime:checkpoint",
        arguments={"bytes": 32 * MIB},
        question="How fast does a checkpoint reach the disk?",
        level=2,
        tries=(2, 5, 50),
        seconds=(1.0, 3.0, 30.0),
        what="checkpoints",
    ),
)


def at_level(level: int) -> tuple[Probe, ...]:
    """Return what is run at a level."""
    return tuple(probe for probe in PROBES if probe.level <= level)


def estimate(level: int, *, gpus: int = 0) -> float:
    """Return the seconds that a level takes at most, if nothing hangs."""
    chosen = [probe for probe in at_level(level) if probe.gpus <= gpus]
    column = LEVELS.index(level)
    starting = sum(FRESH_START if probe.fresh else FORK_START for probe in chosen)
    return FRESH_START + starting + sum(probe.seconds[column] for probe in chosen)
