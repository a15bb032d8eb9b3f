"""What would be tried against each failure, on ten machines, after each kind of history.

``sequences.txt`` has the usual sequence, and the machines on which it is another. A change of it is
a change of what runs do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.model import FailedAttempt, Strategy

if TYPE_CHECKING:
    from tests.conftest import Expected
    from tests.failures.remedies.conftest import Situations

FILE = Path(__file__).with_name("sequences.txt")
MACHINES = (
    "cpu-wheel",
    "mi300x-8",
    "no-amd-gpu",
    "r9700-pair",
    "rx5700xt-override",
    "rx7900xt-allocator",
    "rx7900xt-pair",
    "rx9070xt",
    "rx9070xt-windows",
    "strix-halo",
)
VARIABLES = {
    "AMD_SERIALIZE_KERNEL": "3",
    "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
    "MIOPEN_FIND_MODE": "2",
    "NCCL_P2P_DISABLE": "0",
    "PYTORCH_HIP_ALLOC_CONF": "max_split_size_mb:64",
    "PYTORCH_NO_HIP_MEMORY_CACHING": "1",
}


def histories(situations: Situations, kind: str) -> dict[str, dict[str, object]]:
    """Return what differs from a plain run that has failed once at step 100."""
    failed = situations(kind).tried[0]
    return {
        "first failure": {"loader": situations.loader(persistent=True)},
        "before step 1": {"tried": (FailedAttempt(strategy=Strategy(), failure=failed.failure),)},
        "two ranks, variables set": {"ranks": 2, "variables": VARIABLES},
        "after NaN with a fork server": {
            "strategy": Strategy(worker_context="forkserver", precision="bf16"),
            "tried": (
                FailedAttempt(
                    strategy=Strategy(worker_context="forkserver", precision="bf16"),
                    failure=situations("nan-loss").failure.fingerprint,
                    steps=50,
                ),
                failed,
            ),
        },
    }


def sequences(situations: Situations) -> Iterator[str]:
    for kind, about in load_failures().kinds.items():
        yield kind
        found: dict[tuple[str, ...], list[str]] = {}
        for history, given in histories(situations, kind).items():
            there = {"nature": about.nature, "person": about.fix, **given}
            tried = tuple(tried_on(situations, kind, machine, there) for machine in MACHINES)
            found.setdefault(tried, []).append(history)
        for tried, same in found.items():
            usual = max(tried, key=tried.count)
            yield f"  {', '.join(same)}: {usual or 'nothing'}"
            for other in sorted({*tried} - {usual}):
                where = [name for name, each in zip(MACHINES, tried, strict=True) if each == other]
                yield f"    {other or 'nothing'}: {' '.join(where)}"


def tried_on(situations: Situations, kind: str, machine: str, given: dict[str, object]) -> str:
    *choices, _ = situations.preview(situations(kind, machine, **given))  # type: ignore[arg-type]
    return " ".join(choice.remedy for choice in choices)


def test_the_same_remedies_in_the_same_order_as_ever(
    situations: Situations, expected: Expected
) -> None:
    expected(FILE, "\n".join(sequences(situations)) + "\n")
