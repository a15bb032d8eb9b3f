"""How old the knowledge is, and whether a machine is newer than it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from packaging.version import InvalidVersion, Version

from rocsteady.doctor.knowledge.gpu_names import gfx_of
from rocsteady.doctor.knowledge.reader import Knowledge, own_folder
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.values import KnowledgeState
from rocsteady.wording import plural

OLD = 90  # days
CALENDAR = re.compile(r"(\d{4})\.(\d{1,2})\b")


def knowledge_state(
    knowledge: Knowledge, machine: Machine | None = None, *, today: date
) -> KnowledgeState:
    released = CALENDAR.match(knowledge.version)
    month = f"{released[1]}-{released[2]:0>2}" if released else ""
    age = days_since(month, today) or 0
    notes = [f"Ignored in {own_folder()}: {problem}" for problem in knowledge.ignored_own]
    if age > OLD:
        notes.append(
            f"The knowledge base is {age} days old. To update it: rocsteady doctor --knowledge"
        )
    if knowledge.ignored:
        notes.append(
            f"{plural(len(knowledge.ignored), 'entry', 'entries')} of the knowledge base ignored:"
            " newer than this rocsteady. Details: rocsteady doctor --knowledge"
        )
    if machine is not None:
        notes += _beyond(machine, knowledge)
    return KnowledgeState(version=knowledge.version, age_days=age, notes=tuple(notes))


def days_since(day: str, today: date) -> int | None:
    """Return the days since a day, or since the first one of a month or year."""
    if not day:
        return None
    year, month, number = (int(part) for part in f"{day}-01-01".split("-")[:3])
    return max((today - date(year, month, number)).days, 0)


def _beyond(machine: Machine, knowledge: Knowledge) -> Iterator[str]:
    torch = machine.torch
    newest = (
        ("torch", torch.version if torch else None, str(knowledge.newest_torch())),
        ("ROCm", torch.rocm if torch else None, str(knowledge.newest_rocm())),
        ("Linux", machine.system.kernel, knowledge.kernel),
    )
    for what, version, last in newest:
        if version and what == "Linux" and machine.system.os != "linux":
            continue
        if _minor(version) > _minor(last):
            yield f"{what} {version} is newer than the knowledge base covers (up to {last})."
    for gfx in dict.fromkeys(gfx_of(gpu, knowledge) for gpu in machine.gpus.gpus):
        if gfx and gfx not in knowledge.arches:
            yield f"No entry of the knowledge base covers {gfx}."


def _minor(version: str | None) -> tuple[int, int]:
    """Return major and minor; a kernel's suffix is left out."""
    try:
        number = Version((version or "0").partition("-")[0].partition("+")[0])
    except InvalidVersion:
        return 0, 0
    return number.major, number.minor
