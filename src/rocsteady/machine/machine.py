"""A Machine: what a computer is, as far as its files tell. Facts only; nothing is judged here."""

from __future__ import annotations

from collections.abc import Collection

from rocsteady.errors import ExaminationError
from rocsteady.machine.access import Access, read_access
from rocsteady.machine.caches import Cache, read_caches
from rocsteady.machine.gpus import GpuSurvey, survey_gpus
from rocsteady.machine.limits import Limits, read_limits
from rocsteady.machine.python_env import PythonEnv, find_python
from rocsteady.machine.rocm import (
    RocmInstall,
    Shadow,
    read_distribution_hsa,
    read_installs,
    read_libnuma,
    read_shadows,
)
from rocsteady.machine.root import Root
from rocsteady.machine.system import Driver, System, read_driver, read_system
from rocsteady.machine.torch_build import TorchBuild, packages, read_torch
from rocsteady.machine.variables import SetVariable, read_variables
from rocsteady.machine.view import Unread, View, patiently
from rocsteady.machine.windows import survey_adapters
from rocsteady.model import Value

VERSION = 1


class Machine(Value, frozen=True, kw_only=True):
    """What a computer is."""

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
    """Read everything below ``root``; what could not be read is part of the answer."""

    def look(view: View) -> Machine:
        if view.platform != "win32" and not (view.exists("/sys") or view.exists("/proc")):
            raise ExaminationError("nothing to examine: neither /sys nor /proc exists")
        python = find_python(view)
        windows = view.platform == "win32"
        gpus, driver = survey_adapters(view) if windows else (survey_gpus(view), read_driver(view))
        return Machine(
            system=read_system(view),
            driver=driver,
            gpus=gpus,
            access=read_access(view),
            rocm=read_installs(view),
            library_shadows=read_shadows(view),
            distribution_hsa=read_distribution_hsa(view),
            libnuma=read_libnuma(view),
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

    return patiently(root, look)
