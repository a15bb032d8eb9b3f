"""Every victim under ``rocsteady run``: hangs are found in time, look-alikes are left alone.

Patience is shortened here (``victims/hurried.py``), and pauses with it; ``victims/watched.py`` runs
the whole set at full length.
"""

from __future__ import annotations

import shutil

import pytest
from cases import VICTIMS, Kind, Victim
from watched import watch

SPEED = 12.5  # of pauses: a fifth, divided by what patience is divided by
TOO_LONG = {  # in the full set only; each has a shorter sibling here
    "stopped_again",
    "torch_compile_real",
}
CASES = [v for v in VICTIMS if v.kind is not Kind.HELPER and v.name not in TOO_LONG]

IN_CI = {  # every kind of verdict; the corpus has more look-alikes
    "hang_backward_gil",
    "hang_worker_semaphore",
    "hang_allreduce",
    "stopped_self",
    "endless_python_loop",
    "hang_at_exit",
    "first_step_files_grow",
    "validation_60s",
    "micro_steps_500",
    "breakpoint_waits",
}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "victim",
    [pytest.param(v, id=v.name, marks=[pytest.mark.ci] * (v.name in IN_CI)) for v in CASES],
)
def test_a_victim_is_told_for_what_it_is(victim: Victim, torch_python: str) -> None:
    missing = [program for program in victim.needs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {missing}")

    seen = watch(victim, torch_python, speed=SPEED, hurried=True)

    assert not seen.wrong, f"{seen.wrong}\n{seen.said}\n{seen.printed[-2000:]}"
