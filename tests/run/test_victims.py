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

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("victim", CASES, ids=lambda victim: victim.name)
def test_a_victim_is_told_for_what_it_is(victim: Victim, torch_python: str) -> None:
    missing = [program for program in victim.needs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {missing}")

    seen = watch(victim, torch_python, speed=SPEED, hurried=True)
    if seen.wrong and victim.kind is not Kind.LOOK_ALIKE:
        # The machine may have been busy. Never for these.
        seen = watch(victim, torch_python, speed=SPEED, hurried=True)

    assert not seen.wrong, f"{seen.wrong}\n{seen.said}\n{seen.printed[-2000:]}"
