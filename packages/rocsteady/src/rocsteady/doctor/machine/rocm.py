"""ROCm installs of the system, and ROCm libraries that would be loaded before a wheel's own."""

from __future__ import annotations

import re

from rocsteady.doctor.machine.view import View
from rocsteady.model import Value
from rocsteady.system.root import PATH_LIMIT, Disk, parent

ROCM_FOLDER = re.compile(r"^rocm(-[\w.]+)?$")
ROCM_LIBRARY = re.compile(
    r"^lib(amdhip64|hsa-runtime64|hsakmt|rocblas|hipblas|hipblaslt|MIOpen|rccl|rocsolver|amd_comgr)\.so"
)
DISTRIBUTION_HSA = (
    "/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1",
    "/usr/lib/x86_64-linux-gnu/libhsakmt.so.1",
    "/usr/lib64/libhsa-runtime64.so.1",
)
LIBNUMA = (
    "/usr/lib/x86_64-linux-gnu/libnuma.so",
    "/usr/lib64/libnuma.so",
    "/usr/lib/libnuma.so",
)
MAX_FOLDERS = 32  # of LD_LIBRARY_PATH


class RocmInstall(Value, frozen=True, kw_only=True):
    path: str
    version: str


class Shadow(Value, frozen=True, kw_only=True):
    """A folder of LD_LIBRARY_PATH with ROCm libraries in it."""

    folder: str
    libraries: tuple[str, ...]


def read_installs(view: View) -> tuple[RocmInstall, ...]:
    """Return every ROCm below /opt, and the one that ROCM_PATH names."""
    named = (view.environment or {}).get("ROCM_PATH", "").rstrip("/")
    folders = [f"/opt/{name}" for name in view.names("/opt") if ROCM_FOLDER.match(name)]
    found: dict[str, RocmInstall] = {}
    for folder in (*folders, *([named] if named.startswith("/") else [])):
        real = view.resolve(folder)
        version = view.text(f"{real}/.info/version")
        if version:
            found.setdefault(real, RocmInstall(path=real, version=version[:40]))
    return tuple(found.values())


def read_shadows(view: View) -> tuple[Shadow, ...]:
    path = (view.environment or {}).get("LD_LIBRARY_PATH", "")
    folders = [folder.rstrip("/") for folder in path.split(":") if folder.startswith("/")]
    shadows = []
    for folder in dict.fromkeys(folders[:MAX_FOLDERS]):
        libraries = tuple(name for name in view.names(folder) if ROCM_LIBRARY.match(name))
        if libraries:
            shadows.append(Shadow(folder=folder, libraries=libraries))
    return tuple(shadows)


def read_distribution_hsa(view: View) -> tuple[str, ...]:
    """Return the ROCm runtime libraries that the distribution itself brought."""
    return tuple(path for path in DISTRIBUTION_HSA if view.exists(path))


# Where MIOpen keeps the kernels it compiles and the choices it measures.
# name, the variable that moves it, where it is below the home folder otherwise
PLACES = (
    ("kernel cache", "MIOPEN_CUSTOM_CACHE_DIR", ".cache/miopen"),
    ("user database", "MIOPEN_USER_DB_PATH", ".config/miopen"),
)


class Cache(Value, frozen=True, kw_only=True):
    """One folder that should outlive a run."""

    name: str
    path: str
    variable: str  # the variable that put it there; "" for the default place
    disk: Disk | None  # of the folder, or of the nearest one above it that exists


def read_caches(view: View) -> tuple[Cache, ...]:
    """Return where MIOpen would write, and on what."""
    environment = view.environment or {}
    home = environment.get("HOME", "").rstrip("/")
    if view.platform != "linux":
        return ()
    caches = []
    for name, variable, default in PLACES:
        moved = environment.get(variable, "")
        path = moved or (f"{home}/{default}" if home else "")
        if path.startswith("/") and ".." not in path.split("/") and len(path) <= PATH_LIMIT:
            caches.append(
                Cache(
                    name=name,
                    path=path,
                    variable=variable if moved else "",
                    disk=_nearest_disk(view, path),
                )
            )
    return tuple(caches)


def _nearest_disk(view: View, path: str) -> Disk | None:
    while path != "/":
        if view.exists(path):
            return view.disk(path)
        path = parent(path)
    return view.disk("/")
