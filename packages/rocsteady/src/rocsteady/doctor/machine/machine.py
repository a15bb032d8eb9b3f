"""A Machine: what a computer is, as far as its files tell. Facts only; nothing is judged here."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.gpus import Access, GpuSurvey, read_access, survey_gpus
from rocsteady.doctor.machine.python_env import PythonEnv, find_python
from rocsteady.doctor.machine.rocm import (
    LIBNUMA,
    Cache,
    RocmInstall,
    Shadow,
    read_caches,
    read_distribution_hsa,
    read_installs,
    read_shadows,
)
from rocsteady.doctor.machine.system import (
    Driver,
    Limits,
    SetVariable,
    System,
    read_driver,
    read_limits,
    read_system,
    read_variables,
)
from rocsteady.doctor.machine.torch_build import TorchBuild, packages, read_torch
from rocsteady.doctor.machine.view import Unread, View, patiently
from rocsteady.doctor.machine.windows import survey_adapters
from rocsteady.errors import ExaminationError
from rocsteady.model import Value
from rocsteady.system.disk_root import DiskRoot
from rocsteady.system.root import Root

VERSION = 1


class Machine(Value, frozen=True, kw_only=True):
    version: int = VERSION
    system: System
    driver: Driver
    gpus: GpuSurvey
    access: Access
    rocm: tuple[RocmInstall, ...]
    library_shadows: tuple[Shadow, ...]
    distribution_hsa: tuple[str, ...]
    libnuma: str = ""  # of the system, under the plain name that rocSHMEM asks for
    limits: Limits
    caches: tuple[Cache, ...]
    python: PythonEnv | None
    torch: TorchBuild | None
    packages: dict[str, str]
    variables: tuple[SetVariable, ...]
    variables_known: bool  # False: a copied folder cannot say which were in force
    facts_read: int = 0
    unread: tuple[Unread, ...] = ()


def examine(root: Root, known_variables: Collection[str]) -> tuple[Machine, View]:
    return patiently(root, lambda view: read_machine(view, known_variables))


def read_machine(view: View, known_variables: Collection[str]) -> Machine:
    """Read a machine; only for files that cannot hang, such as those of a recording."""
    if view.platform != "win32" and not (view.exists("/sys") or view.exists("/proc")):
        raise ExaminationError("nothing to examine: neither /sys nor /proc exists")
    python = find_python(view)
    windows = view.platform == "win32"
    gpus, driver = survey_adapters(view) if windows else (survey_gpus(view), read_driver(view))
    return Machine(
        system=read_system(view, python.site_packages if python else ()),
        driver=driver,
        gpus=gpus,
        access=read_access(view),
        rocm=read_installs(view),
        library_shadows=read_shadows(view),
        distribution_hsa=read_distribution_hsa(view),
        libnuma=next((path for path in LIBNUMA if view.exists(path)), ""),
        limits=read_limits(view),
        caches=read_caches(view),
        python=python,
        torch=read_torch(view, python) if python else None,
        packages=dict(packages(view, python)) if python else {},
        variables=read_variables(view.environment or {}, known_variables),
        variables_known=view.environment is not None,
        facts_read=view.facts_read,
        unread=view.unread,
    )


# What an observation is true of: GPUs, driver, ROCm, torch and Python, as a line that can be
# read. Two lines are compared part by part, so that it can be said what has changed since.
BETWEEN = "; "
GPU, DRIVER, ROCM, TORCH, PYTHON = "GPU", "driver", "ROCm", "torch", "Python"
PARTS = (GPU, DRIVER, ROCM, TORCH, PYTHON)
NONE = "none"


def software_of(machine: Machine) -> str:
    """Return one line such as "GPU 2 x gfx1100; driver 6.8.5; ROCm 6.2; torch 2.5.1"."""
    return BETWEEN.join(f"{part} {value}" for part, value in _parts(machine))


def changes(before: str, now: str) -> str:
    """Return what is not as it was, such as "torch 2.9.1, now 2.10.0"; "" if nothing changed."""
    old, new = _read(before), _read(now)
    return BETWEEN.join(
        f"{part} {old.get(part, NONE)}, now {new.get(part, NONE)}"
        for part in PARTS
        if old.get(part, NONE) != new.get(part, NONE)
    )


def _parts(machine: Machine) -> Iterator[tuple[str, str]]:
    counted = Counter(gpu.gfx or gpu.name or "of unknown kind" for gpu in machine.gpus.gpus)
    gpus = ", ".join(f"{number} x {gfx}" if number > 1 else gfx for gfx, number in counted.items())
    yield GPU, gpus or NONE
    if gpus or machine.system.wsl:  # without a GPU its driver makes no difference
        driver = machine.driver
        yield DRIVER, driver.version or f"of kernel {machine.system.kernel}"
        rocm = dict.fromkeys(install.version for install in machine.rocm if install.version)
        yield ROCM, ", ".join(rocm) or NONE
    yield TORCH, machine.torch.version if machine.torch else NONE
    yield PYTHON, (machine.python.version if machine.python else "") or NONE


def _read(line: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition(" ") for part in line.split(BETWEEN))}


def examined(knowledge: Knowledge, command: Sequence[str] = ()) -> Machine:
    """Examine this machine, with the Python that a command names, or else the one that is found."""
    name = Path(command[0]).name if command else ""
    named = shutil.which(command[0]) if name.startswith("python") else None
    python = str(Path(named).absolute()) if named else None
    return examine(DiskRoot(python=python), knowledge.variables)[0]
