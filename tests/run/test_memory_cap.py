"""What was measured before the machine went down says whether a GPU's memory was nearly full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocsteady.run.recovery.machine import RunMachine
from rocsteady.store.values import Bucket, Gauge

if TYPE_CHECKING:
    from tests.conftest import Recorded

GIB = 1 << 30


def bucket(start: float, gib: float, gpu: int = 0) -> Bucket:
    used = gib * GIB
    seen = {f"GPU {gpu} memory": Gauge(least=0.0, most=used, mean=used, count=1)}
    return Bucket(run=1, attempt=1, start=start, width=10, first_step=0, last_step=1, gauges=seen)


@pytest.mark.parametrize(
    ("on", "held", "full"),
    [
        ("rx9070xt", [8.0, 15.0], True),
        ("rx9070xt", [15.0, 8.0], False),  # long before the end
        ("rx9070xt", [], False),
        ("vega-apu-plain", [0.4], False),
        ("no-amd-gpu", [15.0], False),
    ],
)
def test_only_what_was_measured_last_counts(
    recorded: Recorded, on: str, held: list[float], *, full: bool
) -> None:
    machine = RunMachine(
        script="s",
        here="m",
        memory=None,
        knowledge=recorded.knowledge,
        machine=lambda: recorded.machine(on),
        variables={},
    )
    machine.saw(bucket(float(at), gib) for at, gib in enumerate(held))

    assert machine.memory_full is full
