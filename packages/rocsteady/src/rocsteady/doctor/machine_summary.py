"""A machine in a few lines, and what training on it can be expected to run on."""

from __future__ import annotations

from collections.abc import Sequence

from rocsteady.doctor.checks import gpu_code
from rocsteady.doctor.condition_match import CannotTell
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.knowledge.gpu_names import card_name, describe, gfx_of
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.training_gpus import trainable
from rocsteady.doctor.values import Brief, ComputeDevice, Finding


def brief(machine: Machine, facts: Facts, knowledge: Knowledge) -> Brief:
    python, torch = machine.python, machine.torch
    return Brief(
        gpus=describe(machine.gpus.gpus, knowledge),
        other_gpus=_other_gpus(machine, knowledge),
        system=_system(machine),
        python=f"environment {python.prefix} ({python.chosen})" if python else "",
        torch=f"{torch.version}, Python {python.version}" if torch and python else "",
        torch_code=_torch_code(machine, facts),
    )


def trains_on(machine: Machine, facts: Facts, findings: Sequence[Finding]) -> ComputeDevice:
    if not facts.values("torch.installed") or machine.torch is None:
        return ComputeDevice.UNKNOWN
    if machine.torch.build == "cuda":
        return ComputeDevice.UNKNOWN  # another vendor's GPU, which we do not look at
    if any(finding.severity is Severity.BLOCKS for finding in findings):
        return ComputeDevice.CPU
    if machine.system.wsl:
        return ComputeDevice.UNKNOWN
    if trainable(machine) and machine.torch.build == "rocm":
        return ComputeDevice.GPU
    return ComputeDevice.CPU


def names(machine: Machine, facts: Facts, knowledge: Knowledge) -> tuple[str, ...]:
    """Name the GPUs one would train on, without those that torch has no code for."""
    try:
        lacking = gpu_code(machine, facts, knowledge).lacking
    except CannotTell:
        lacking = ()
    gpus = trainable(machine)
    able = tuple(gpu for gpu in gpus if gfx_of(gpu, knowledge) not in lacking)
    return describe(able or gpus, knowledge, details=False)


def _other_gpus(machine: Machine, knowledge: Knowledge) -> tuple[str, ...]:
    survey = machine.gpus
    withheld = len(survey.withheld_nodes)
    lines = [f"{withheld} not accessible from here"] if withheld else []
    lines += [
        f"{card_name(gpu, knowledge)} (the driver does not offer it for compute)"
        for gpu in survey.not_offered
    ]
    if machine.system.wsl:
        lines.append("behind WSL2, which does not list it in its files")
    return tuple(lines)


def _system(machine: Machine) -> str:
    system, driver = machine.system, machine.driver
    parts = [system.distribution]
    parts += [f"{system.container} container"] if system.container else []
    parts += ["WSL2"] if system.wsl else []
    parts += (
        [f"{'build' if system.os == 'windows' else 'kernel'} {system.kernel}"]
        if system.kernel
        else []
    )
    if driver.kind == "Windows":
        parts.append(f"display driver {driver.version}")
    elif driver.kind:
        parts.append(f"amdgpu {driver.version or ''} {driver.kind}".replace("  ", " "))
    elif not system.wsl:
        parts.append("amdgpu not loaded")
    return ", ".join(part for part in parts if part)


def _torch_code(machine: Machine, facts: Facts) -> str:
    torch = machine.torch
    if torch is None:
        return ""
    if torch.build != "rocm":
        return f"a {torch.build.upper()} build without code for AMD GPUs"
    arches = " ".join(str(arch) for arch in facts.values("torch.arches"))
    basis = {"library": "from its library", "file names": "from its file names"}
    return (
        f"includes code for {arches} ({basis.get(torch.arches_from, 'from the release table')})"
        if arches
        else ""
    )
