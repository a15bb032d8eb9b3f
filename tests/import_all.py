"""Import every module of rocsteady that does not need torch."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import rocsteady

NEEDS_MORE = ("rocsteady_train", "rocsteady_train.integrations", "rocsteady_train.inside.payloads")
NOT_TO_IMPORT = (
    "rocsteady.__main__",
    "rocsteady_train.inside.sitecustomize",
)  # they run when imported


def main() -> None:
    """Import each module; the first that fails ends this with its traceback."""
    count = 0
    for module in pkgutil.walk_packages(rocsteady.__path__, "rocsteady.", onerror=lambda _: None):
        name = module.name
        if name.startswith(NEEDS_MORE) or name in NOT_TO_IMPORT:
            continue
        importlib.import_module(name)
        count += 1
    assert count > 100, f"only {count} modules were found"
    print(f"{count} modules imported on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
