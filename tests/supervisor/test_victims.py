"""Every victim under ``rocsteady run``: hangs are found in time, look-alikes are left alone.

Pauses are shortened here; ``tests/victims/watched.py`` runs the whole set at full length.
"""

from __future__ import annotations

import os
import shutil

import pytest
from cases import VICTIMS, Kind, Victim
from watched import watch

SPEED = 5.0
TOO_LONG = {  # in the full set only; each has a shorter sibling here
    "hang_at_import",
    "hang_first_step",
    "stopped_again",
    "endless_native",
    "worker_sleeps",
    "hang_at_exit_handler",
    "torch_compile_real",
    "native_op_150s",
    "growing_steps",
}
CASES = [v for v in VICTIMS if v.kind is not Kind.HELPER and v.name not in TOO_LONG]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("victim", CASES, ids=lambda victim: victim.name)
def test_a_victim_is_told_for_what_it_is(victim: Victim) -> None:
    python = os.environ.get("ROCSTEADY_TEST_TORCH_PYTHON")
    if not python:
        pytest.fail("ROCSTEADY_TEST_TORCH_PYTHON names no interpreter with torch: use nox -s slow")
    missing = [program for program in victim.needs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {missing}")

    seen = watch(victim, python, speed=SPEED)
    if seen.wrong and victim.kind is not Kind.LOOK_ALIKE:
        seen = watch(victim, python, speed=SPEED)  # the machine may have been busy; never for these

    assert not seen.wrong, f"{seen.wrong}\n{seen.said}\n{seen.printed[-2000:]}"
