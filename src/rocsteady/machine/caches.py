"""Where MIOpen keeps the kernels it compiles and the choices it measures."""

from __future__ import annotations

from rocsteady.machine.root import PATH_LIMIT, Disk, parent
from rocsteady.machine.view import View
from rocsteady.model import Value

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
    """Tell where MIOpen would write, and on what."""
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
