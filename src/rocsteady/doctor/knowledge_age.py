"""How old the knowledge is, and whether a machine is newer than any entry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from packaging.version import InvalidVersion, Version

from rocsteady.doctor.values import KnowledgeState
from rocsteady.knowledge.edition import OLD, Edition, newest_rocm, newest_torch
from rocsteady.knowledge.gpu_names import gfx_of
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine


def knowledge_state(
    machine: Machine | None,
    knowledge: Knowledge,
    edition: Edition,
    *,
    today: date,
    complaint: str = "",
) -> KnowledgeState:
    """Say of when the knowledge is, and what of this machine it cannot cover."""
    age = (today - date.fromisoformat(edition.date)).days
    notes = [f"{complaint[:1].upper()}{complaint[1:]}."] if complaint else []
    if age > OLD:
        notes.append(
            f"The knowledge base is {age} days old. To update it: rocsteady knowledge update"
            " --from SOURCE"
        )
    if machine is not None:
        notes += _beyond(machine, knowledge, edition)
    return KnowledgeState(date=edition.date, age_days=max(age, 0), notes=tuple(notes))


def _beyond(machine: Machine, knowledge: Knowledge, edition: Edition) -> Iterator[str]:
    torch = machine.torch
    newest = (
        ("torch", torch.version if torch else None, newest_torch(knowledge)),
        ("ROCm", torch.rocm if torch else None, newest_rocm(knowledge)),
        ("Linux", machine.system.kernel, Version(edition.kernel)),
    )
    for what, version, last in newest:
        if version and what == "Linux" and machine.system.os != "linux":
            continue
        if _minor(version) > _minor(str(last)):
            yield (f"{what} {version} is newer than the knowledge base covers (up to {last}).")
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
