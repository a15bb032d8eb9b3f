"""Two filters that do not fit together.

ROCR_VISIBLE_DEVICES acts first and renumbers what is left; HIP_VISIBLE_DEVICES (or its CUDA name)
then counts from 0 among those. PyTorch refuses when the second names more devices than the first.
"""

from __future__ import annotations

from rocsteady.doctor.facts import Facts
from rocsteady.doctor.matching import CannotTell, Seen
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine

FIRST = "ROCR_VISIBLE_DEVICES"
SECOND = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Compare the lists; ids that are not numbers cannot be compared and are left alone."""
    del knowledge
    if machine.system.os != "linux":
        return ()
    if facts.why_unknown(f"variable:{FIRST}"):
        raise CannotTell(f"variable:{FIRST}")
    settings = {variable.name: variable.value or "" for variable in machine.variables}
    if FIRST not in settings:
        return ()
    left = len(_entries(settings[FIRST]))
    seen = []
    for name in SECOND:
        wanted = _entries(settings.get(name, ""))
        beyond = [entry for entry in wanted if entry.isdecimal() and int(entry) >= left]
        if len(wanted) > left or beyond:
            seen.append(
                f"{FIRST}={settings[FIRST]} leaves {left}, {name}={settings[name]} asks for more"
            )
    return tuple(seen)


def _entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",") if entry.strip()]
