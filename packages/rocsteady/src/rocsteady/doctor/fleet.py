"""Compares many machines: which match, what one lacks that the others have, which rules differ.

Machines with the same kinds of GPU form a group. In a group the most common value of a fact is the
normal one. Facts that differ from moment to moment (memory in use, free disk) are not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.doctor.checks import CHECKS
from rocsteady.doctor.condition_match import Answers
from rocsteady.doctor.diagnosis import rule_findings
from rocsteady.doctor.facts import Facts, Scalar, gather
from rocsteady.doctor.knowledge.gpu_names import card_name, describe
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine.machine import Machine, read_machine
from rocsteady.doctor.machine.recording import RECORDING_LIMIT, RecordedRoot, read_recording
from rocsteady.doctor.machine.view import View
from rocsteady.errors import ExaminationError
from rocsteady.model import Value
from rocsteady.typed_values import decode

TOLERANCE = 0.03  # of an amount of memory: machines of the same parts differ that much
SMALL_GROUP = 0.05  # a group smaller than this part of the largest is compared with the largest
COMMON = 0.5  # a value that fewer machines have is not normal for the others

# What is compared, and what it is called. The rest follows from these, or changes all the time.
COMPARED: Mapping[str, str] = {
    "gpu.count": "GPUs",
    "gpu.address": "GPU at",
    "gpu.gfx": "GPU",
    "gpu.vram_gib": "GPU memory in GiB",
    "gpu.firmware": "GPU firmware",
    "gpu.link_width": "PCIe lanes",
    "gpu.link_speed": "PCIe GT/s",
    "gpu.link_errors": "uncorrected PCIe errors",
    "gpu.memory_errors": "uncorrectable memory errors",
    "gpu.xgmi_peers": "GPUs reached by XGMI",
    "gpu.reachable": "GPU memory that other cards reach",
    "gpu.peers": "traffic between GPUs",
    "gpu.withheld": "GPUs not accessible",
    "gpu.not_offered": "GPU without compute",
    "kernel.version": "kernel",
    "kernel.arguments": "kernel argument",
    "kernel.iommu": "IOMMU",
    "kernel.numa_balancing": "NUMA balancing",
    "driver.version": "amdgpu driver",
    "driver.loaded": "driver loaded",
    "device.kfd": "/dev/kfd",
    "device.render": "render node",
    "rocm.version": "ROCm",
    "torch.version": "torch",
    "torch.build": "torch for",
    "torch.rocm": "torch for ROCm",
    "torch.extras": "torch extra",
    "libraries.distro_hsa": "ROCm of the distribution",
    "libraries.libnuma": "libnuma.so",
    "os": "system",
    "container": "container",
    "memory.gib": "memory in GiB",
    "memory.limit_gib": "memory limit in GiB",
    "shm.gib": "shared memory in GiB",
}
PREFIXES = ("variable:", "package.")  # compared too, by their own names
FOLLOWS_COUNT = frozenset({"gpu.xgmi_peers", "gpu.gfx"})  # what a missing GPU changes by itself
SLEEPS = "gpu.link_speed"  # Radeon cards lower it when idle


class FleetDifference(Value, frozen=True, kw_only=True):
    """What one machine has otherwise than most of its group."""

    fact: str
    label: str
    has: tuple[str, ...]  # that the others do not have
    lacks: tuple[str, ...]  # that the others have


class FleetMachine(Value, frozen=True, kw_only=True):
    name: str
    differences: tuple[FleetDifference, ...]


class FleetRule(Value, frozen=True, kw_only=True):
    """A rule that fires on some machines of a group and not on others."""

    rule: str
    severity: Severity
    summary: str  # of the first
    machines: tuple[str, ...]


class FleetGroup(Value, frozen=True, kw_only=True):
    """Machines with the same kinds of GPU."""

    machines: tuple[str, ...]
    matching: tuple[str, ...]  # that are normal in every fact
    normal: tuple[str, ...]  # what those are, in a few words
    rules: tuple[str, ...]  # that fire on all of them
    different: tuple[FleetMachine, ...]
    partial_rules: tuple[FleetRule, ...]
    varying: tuple[str, ...]  # facts without a normal value


class Unreadable(Value, frozen=True, kw_only=True):
    file: str
    why: str


class FleetReport(Value, frozen=True, kw_only=True):
    version: int = 1
    machines: int
    groups: tuple[FleetGroup, ...]  # the largest first
    unreadable: tuple[Unreadable, ...]


class Judged(NamedTuple):
    name: str
    machine: Machine
    facts: Facts
    rules: Mapping[str, tuple[Severity, str]]  # those that fire


def fleet_report(files: Sequence[Path], knowledge: Knowledge) -> FleetReport:
    """Read recordings, or what ``machine --json`` printed."""
    judged, unreadable = [], []
    answers: Answers = {}
    for name, file in zip(_names(files), files, strict=True):
        try:
            judged.append(_judged(name, _machine(file, knowledge), knowledge, answers))
        except (ExaminationError, OSError) as error:
            unreadable.append(Unreadable(file=str(file), why=str(error)))
    return FleetReport(
        machines=len(judged),
        groups=tuple(_group(group, knowledge) for group in _grouped(judged, knowledge)),
        unreadable=tuple(unreadable),
    )


def _names(files: Sequence[Path]) -> list[str]:
    """Name each machine by its file, with the folder where two have the same name."""
    counted = Counter(file.stem for file in files)
    return [file.stem if counted[file.stem] == 1 else str(file) for file in files]


def _machine(file: Path, knowledge: Knowledge) -> Machine:
    content = read_regular(file, RECORDING_LIMIT)
    if b'"facts_read"' in content:
        try:
            return decode(content, type=Machine)
        except msgspec.DecodeError as error:
            why = f"not what rocsteady machine --json prints: {error}"
            raise ExaminationError(why) from None
    return read_machine(View(RecordedRoot(read_recording(file))), knowledge.variables)


def _judged(name: str, machine: Machine, knowledge: Knowledge, answers: Answers) -> Judged:
    facts = gather(machine, knowledge)
    found = rule_findings(machine, facts, knowledge, CHECKS, answers).findings
    return Judged(name, machine, facts, {it.rule: (it.severity, it.summary) for it in found})


def _grouped(judged: Iterable[Judged], knowledge: Knowledge) -> list[list[Judged]]:
    groups: defaultdict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for each in judged:
        cards = {card_name(gpu, knowledge) for gpu in each.machine.gpus.gpus}
        groups[each.machine.system.os, *sorted(cards)].append(each)
    largest, *others = sorted(groups.values(), key=len, reverse=True) or [[]]
    few = [group for group in others if len(group) < len(largest) * SMALL_GROUP]
    strays = [each for group in few for each in group]
    found = [[*largest, *strays], *(group for group in others if group not in few)]
    return [group for group in found if group]


def _group(group: Sequence[Judged], knowledge: Knowledge) -> FleetGroup:
    facts = {each.name: _compared(each) for each in group}
    names = dict.fromkeys(name for values in facts.values() for name in values)
    normal: dict[str, tuple[Scalar, ...]] = {}
    varying = []
    for name in names:
        seen = (values.get(name, _if_absent(name)) for values in facts.values())
        usual = _usual([values for values in seen if values is not None])
        if usual is None:
            varying.append(name)
        else:
            normal[name] = usual
    different = []
    for each in group:
        found = tuple(_differences(facts[each.name], normal))
        if found:
            different.append(FleetMachine(name=each.name, differences=found))
    odd = {it.name for it in different}
    matching = [each for each in group if each.name not in odd]
    every, some = _rules(group)
    return FleetGroup(
        machines=tuple(each.name for each in group),
        matching=tuple(each.name for each in matching),
        normal=_in_words((matching or group)[0], knowledge),
        rules=every,
        different=tuple(different),
        partial_rules=some,
        varying=tuple(varying),
    )


def _if_absent(name: str) -> tuple[Scalar, ...] | None:
    """Return no values for a variable or package, and None for what could not be told."""
    return () if name.startswith(PREFIXES) else None


def _compared(each: Judged) -> dict[str, tuple[Scalar, ...]]:
    """Return the distinct values of what is compared; what could not be told is left out."""
    facts = each.facts
    own = (name for name in facts.names() if name.startswith(PREFIXES))
    found = {
        name: tuple(sorted({*facts.values(name)}, key=str))
        for name in (*COMPARED, *own)
        if not facts.why_unknown(name)
    }
    idle = any(not str(gfx).startswith("gfx9") for gfx in facts.values("gpu.gfx"))
    if idle:
        found.pop(SLEEPS, None)
    found["os"] = (each.machine.system.distribution or each.machine.system.os,)
    if each.machine.torch:
        found["torch.version"] = (each.machine.torch.version,)
    return found


def _usual(seen: Sequence[tuple[Scalar, ...]]) -> tuple[Scalar, ...] | None:
    """Return what most have; None if no value is that common."""
    amounts = [values[0] for values in seen if len(values) == 1 and isinstance(values[0], float)]
    if len(amounts) * 2 > len(seen):
        middle = median(amounts)
        near = sum(_near(amount, middle) for amount in amounts)
        return (middle,) if near > len(seen) * COMMON else None
    value, count = Counter(seen).most_common(1)[0]
    return value if count > len(seen) * COMMON or len(seen) <= 2 else None  # noqa: PLR2004


def _near(amount: float, middle: float) -> bool:
    return abs(amount - middle) <= abs(middle) * TOLERANCE


def _differences(
    values: Mapping[str, tuple[Scalar, ...]], normal: Mapping[str, tuple[Scalar, ...]]
) -> Iterator[FleetDifference]:
    fewer = values.get("gpu.count") != normal.get("gpu.count")
    for name, usual in normal.items():
        own = values.get(name, _if_absent(name))
        if own is None or own == usual or (fewer and name in FOLLOWS_COUNT and own):
            continue
        near = len(own) == len(usual) == 1 and _both_near(own[0], usual[0])
        has = tuple(_spelled(it) for it in own if it not in usual)
        lacks = tuple(_spelled(it) for it in usual if it not in own)
        if near or not (has or lacks) or (fewer and not has and name not in SHOWN_MISSING):
            continue
        if has and not lacks and all(type(it) in (int, float) for it in own):
            has, lacks = tuple(map(_spelled, own)), tuple(map(_spelled, usual))  # 8, 16 (others 16)
        yield FleetDifference(fact=name, label=label_of(name), has=has, lacks=lacks)


SHOWN_MISSING = frozenset({"gpu.count", "gpu.address", "gpu.gfx"})


def _both_near(one: Scalar, other: Scalar) -> bool:
    return isinstance(one, float) and isinstance(other, float) and _near(one, other)


def label_of(name: str) -> str:
    return COMPARED.get(name) or name.removeprefix("variable:").removeprefix("package.")


def _spelled(value: Scalar) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def _rules(group: Sequence[Judged]) -> tuple[tuple[str, ...], tuple[FleetRule, ...]]:
    firing: defaultdict[str, list[Judged]] = defaultdict(list)
    for each in group:
        for rule in each.rules:
            firing[rule].append(each)
    every = tuple(rule for rule, those in firing.items() if len(those) == len(group))
    order = list(Severity)
    some = [
        FleetRule(
            rule=rule,
            severity=those[0].rules[rule][0],
            summary=those[0].rules[rule][1],
            machines=tuple(each.name for each in those),
        )
        for rule, those in firing.items()
        if len(those) < len(group)
    ]
    return every, tuple(sorted(some, key=lambda it: order.index(it.severity)))


def _in_words(each: Judged, knowledge: Knowledge) -> tuple[str, ...]:
    machine, facts = each.machine, each.facts
    rocm = ", ".join(str(it) for it in facts.values("rocm.version"))
    return tuple(
        part
        for part in (
            " + ".join(describe(machine.gpus.gpus, knowledge, details=False)) or "no AMD GPU",
            f"ROCm {rocm}" if rocm else "",
            f"kernel {machine.system.kernel}" if machine.system.kernel else "",
            f"torch {machine.torch.version}" if machine.torch else "no torch",
        )
        if part
    )
