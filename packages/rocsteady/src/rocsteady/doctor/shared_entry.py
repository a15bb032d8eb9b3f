"""The entry that a person can share: built from typed fields, never from text that was cleaned.

What does not have the form of its field is left out. Nothing is sent from here: the entry is shown,
and a browser opens at a form that it fills in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from rocsteady import __version__
from rocsteady.doctor.knowledge.gpu_names import gfx_of
from rocsteady.doctor.knowledge.observations import (
    ENTRY_LIMIT,
    ENTRY_VERSION,
    Entry,
    MadeBy,
    Names,
    SharedGpu,
    SystemClass,
    Tried,
    decode_entry,
    entry_problems,
    is_known_value,
)
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.gpus import Gpu
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.system import SetVariable, System
from rocsteady.doctor.machine.torch_build import made_by
from rocsteady.errors import ExaminationError
from rocsteady.model import Observation

FORM = "https://github.com/rocsteady/rocsteady/issues/new?template=observation.yml"
ADDRESS_LIMIT = 8000  # characters: GitHub refuses 8,192 and more (github/docs#5136)
MOST_GIB = 1024


def build_entry(
    machine: Machine, knowledge: Knowledge, names: Names, tried: Iterable[Tried], month: str
) -> Entry:
    """Build an entry, or raise ExaminationError saying what it lacks."""
    gpus = [gpu for gpu in machine.gpus.gpus if gfx_of(gpu, knowledge) in knowledge.arches]
    cards = [gpu for gpu in gpus if not gpu.integrated] or gpus
    if not cards:
        raise ExaminationError("nothing to share: no AMD GPU that rocsteady knows was found")
    torch = machine.torch
    version = _form(r"\d{1,2}\.\d{1,2}\.\d{1,2}", torch.version if torch else "")
    if torch is None or version is None:
        raise ExaminationError("nothing to share: no PyTorch was found; name it with --python PATH")
    driver = machine.driver.version if machine.driver.kind == "DKMS" else None
    windows = machine.system.os == "windows"
    entry = Entry(
        version=ENTRY_VERSION,
        month=month,
        rocsteady=__version__,
        gpu=_gpu(cards, knowledge),
        system=_system_class(machine.system),
        kernel=None if windows else _form(r"\d{1,2}\.\d{1,2}", machine.system.kernel),
        driver=_form(r"\d{1,2}\.\d{1,2}\.\d{1,2}", driver or ""),
        rocm=_form(r"\d{1,2}\.\d{1,2}(\.\d{1,2})?", torch.rocm or ""),
        torch=version,
        torch_index=MadeBy(made_by(torch)),
        python=_form(r"\d\.\d{1,2}", machine.python.version if machine.python else ""),
        variables=_variables(machine.variables, knowledge),
        tried=tuple(tried),
    )
    text = entry_text(entry)
    if len(text) > ENTRY_LIMIT:
        raise ExaminationError(f"the entry has {len(text):,} bytes; {ENTRY_LIMIT:,} are allowed")
    for problem in entry_problems(decode_entry(text), knowledge, names, month):
        raise ExaminationError(f"nothing to share: {problem}")
    return entry


def entry_text(entry: Entry, *, indent: int = 0) -> str:
    """Return the JSON; with an indent as it is shown."""
    compact = msgspec.json.encode(entry)
    return (msgspec.json.format(compact, indent=indent) if indent else compact).decode()


def form_address(entry: Entry) -> str:
    """Return the address of the form with the entry; without it, if that would be too long."""
    filled = f"{FORM}&entry={quote(entry_text(entry), safe=':,')}"
    return filled if len(filled) <= ADDRESS_LIMIT else FORM


def probes_tried(observations: Iterable[Observation], names: Names) -> list[Tried]:
    """Count what came of probes, each with all its variants."""
    times: dict[str, int] = {}
    failures: dict[str, dict[str, int]] = {}
    for each in observations:
        ended_badly = int(each.bad and each.failure in names.failures)
        if each.probe in names.probes and each.tries + ended_badly:
            times[each.probe] = times.get(each.probe, 0) + each.tries + ended_badly
            if ended_badly:
                kinds = failures.setdefault(each.probe, {})
                kinds[each.failure] = kinds.get(each.failure, 0) + 1
    return [
        Tried(what=name, times=number, failures=failures.get(name, {}))
        for name, number in times.items()
    ]


def _gpu(cards: list[Gpu], knowledge: Knowledge) -> SharedGpu:
    first, gfx = cards[0], gfx_of(cards[0], knowledge) or ""
    gib = round((first.vram_bytes or 0) / 2**30)
    return SharedGpu(
        gfx=gfx,
        device=first.device,
        compute_units=first.compute_units,
        memory_gib=gib if 0 < gib <= MOST_GIB else None,
        count=sum(gfx_of(card, knowledge) == gfx for card in cards),
    )


def _system_class(system: System) -> SystemClass:
    if system.os == "windows":
        return SystemClass.WINDOWS
    if system.wsl:
        return SystemClass.WSL
    return SystemClass.CONTAINER if system.container else SystemClass.LINUX


def _variables(found: Iterable[SetVariable], knowledge: Knowledge) -> dict[str, str]:
    return {
        each.name: each.value
        for each in found
        if each.value is not None
        and each.name in knowledge.variables
        and is_known_value(each.value, knowledge.variables[each.name])
    }


def _form(pattern: str, text: str) -> str | None:
    """Return the beginning of a text if it has the form; the rest may be anybody's."""
    found = re.match(pattern, text)
    return found[0] if found else None
