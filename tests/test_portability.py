"""Every module but those for POSIX imports on a system that lacks what only POSIX has."""

from __future__ import annotations

import json
import subprocess
import sys

POSIX_ONLY = ("fcntl", "grp", "pty", "pwd", "resource", "termios")
LEFT_OUT = (
    "rocsteady.__main__",  # runs the program
    "rocsteady.host.posix",  # Windows has host/windows instead
    "rocsteady.host.windows_child",  # imports on Windows only
    "rocsteady.host.windows_job",  # the same
    "rocsteady.integrations",  # needs torch and a framework
    "rocsteady.training",  # needs torch
    "rocsteady.inside.sitecustomize",  # Python itself imports it, at its start and under that name
)
# Imports every module in turn and says which could not be, and why. An empty stand-in takes the
# place of host/posix: on Windows the modules that choose between the two would not ask for it.
IMPORTER = """
import importlib, importlib.machinery, json, pkgutil, sys
absent, left_out, posix = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(absent))
import rocsteady

class StandIn:
    def find_spec(self, name, path=None, target=None):
        if (name + ".").startswith(posix + "."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        module.__getattr__ = lambda name: type(name, (), {})

sys.meta_path.insert(0, StandIn())
found, failed = [], {}
walk = pkgutil.walk_packages(rocsteady.__path__, "rocsteady.", onerror=lambda name: None)
for name in (module.name for module in walk):
    if not any((name + ".").startswith(other + ".") for other in left_out):
        found.append(name)
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = repr(error)
print(json.dumps([found, failed]))
"""


def test_every_module_imports_where_posix_is_absent() -> None:
    order = json.dumps([POSIX_ONLY, LEFT_OUT, "rocsteady.host.posix"])

    child = subprocess.run(
        [sys.executable, "-c", IMPORTER, order],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )

    found, failed = json.loads(child.stdout)
    assert failed == {}
    assert {"rocsteady.host.windows", "rocsteady.machine.registry"} <= {*found}
    assert "rocsteady.cli.main" in found
