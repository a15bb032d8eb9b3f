"""Import every module of the packages that are named; what needs torch or a trainer is compiled.

python tests/import_all.py rocsteady rocsteady_train
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import pkgutil
import sys

THEIRS = ("accelerate", "lightning", "numpy", "pytorch_lightning", "torch", "transformers")
RUNS_WHEN_IMPORTED = (
    "rocsteady.__main__",
    "rocsteady_train.inside.sitecustomize",
    "rocsteady_train.inside.standby",
)


def import_all(package: str) -> str:
    """Import each module; the first that fails ends this with its traceback."""
    imported, compiled = 0, 0
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda _: None):
        if module.name in RUNS_WHEN_IMPORTED:
            continue
        try:
            importlib.import_module(module.name)
            imported += 1
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in THEIRS:
                raise
            spec = importlib.util.find_spec(module.name)
            assert spec is not None
            assert isinstance(spec.loader, importlib.machinery.SourceFileLoader)
            spec.loader.get_code(module.name)
            compiled += 1
    assert imported > 10, f"only {imported} modules of {package} were found"
    return f"{package}: {imported} modules imported, {compiled} that need torch compiled"


def main() -> None:
    """Import what the command line names."""
    for package in sys.argv[1:]:
        print(import_all(package), f"on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
