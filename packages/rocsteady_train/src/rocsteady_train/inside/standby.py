"""A standby: an interpreter of the next attempt that has imported torch and waits for its turn.

``sitecustomize`` loads this module last, and only where the supervisor asked for it: in an attempt,
to leave how the script imports torch; in a standby, to import it ahead and block. Once it is loaded
Python goes on as always: it opens the script and runs it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from types import BuiltinFunctionType, ModuleType
from typing import Any

from . import wire
from .heartbeat import hooks, page

SITE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TORCH = "torch"
PARTS = (TORCH, "functorch")  # functorch imports torch, and is imported by it
# Packages with libraries of their own that may be loaded before torch: they compute only.
KNOWN_LIBRARIES = {TORCH, "functorch", "numpy", "markupsafe", "yaml", "_yaml", "psutil"}
DEVICES = ("/dev/kfd", "/dev/dri", "/dev/nvidia", "/dev/accel")
MADE_BY_OTHERS = ("__main__", "__mp_main__", "cython_runtime", "_cython_")  # modules without a file
MOST_FILES = 2000


class Recorder:
    """Leaves how the script imports torch, each time that torch is looked for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        del path, target
        if name == TORCH:
            leave_imports()


class Held:
    """Torch, imported ahead and out of sight, found again when the script imports it."""

    def __init__(self) -> None:
        self.asked: set[str] = set()  # what the import looked for, found or not
        self._parts: dict[str, ModuleType] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        del target
        if path is None and not self._parts:
            self.asked.add(name)
        if name not in self._parts or name != TORCH:
            return None
        module = self._parts[name]
        spec: Any = module.__spec__
        spec.loader.create_module = lambda _: module
        spec.loader.exec_module = self._show
        return spec

    def hide(self) -> None:
        """Take torch and its parts away: whoever imports one of these imports torch first."""
        for name in [*sys.modules]:
            if name.partition(".")[0] in PARTS:
                self._parts[name] = sys.modules.pop(name)

    def _show(self, module: Any) -> None:
        del module.__loader__.create_module, module.__loader__.exec_module
        sys.meta_path.remove(self)
        leave_imports()
        sys.modules.update(self._parts)
        hooks.before(TORCH, module)


at_start: dict[str, Any] = {}  # the state of this process at the first line of the script


def state() -> dict[str, Any]:
    """Return what an import of torch can see of this process, by what a script does to it."""
    logging: Any = sys.modules.get("logging")
    modules: dict[str, Any] = dict(sys.modules)
    monitoring = getattr(sys, "monitoring", None)
    children = [f"/proc/self/task/{thread}/children" for thread in os.listdir("/proc/self/task")]
    return {
        "sets a variable": dict(os.environ),
        "filters warnings": [
            each
            for each in warnings.filters
            if not each[1] and not each[3] and each[2].__module__ == "builtins"
        ],
        "replaces its output": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "is debugged or profiled": [
            bool(sys.gettrace()),
            bool(sys.getprofile()),
            monitoring and [monitoring.get_tool(number) for number in range(6)],
        ],
        "chooses its processors": os.sched_getaffinity(0),
        "chooses how libraries are loaded": sys.getdlopenflags(),
        "starts other processes": any(map(_content, children)),
        "puts a module in place": {
            name
            for name, module in modules.items()
            if (module is None or (type(module) is ModuleType and module.__spec__ is None))
            and not name.startswith(MADE_BY_OTHERS)
        },
        "has an import of its own": isinstance(__import__, BuiltinFunctionType),
        "configures logging": [
            not logging or logging.getLoggerClass() is logging.Logger,
            "logging.config" in modules,  # it silences the loggers that exist by then
        ],
        "loads other libraries": {
            name.partition(".")[0]
            for name, module in modules.items()
            if str(getattr(module, "__file__", "")).endswith(".so")
            and "lib-dynload" not in module.__file__
        }
        - KNOWN_LIBRARIES,
    }


def leave_imports() -> None:
    """Leave what the script does before it imports torch, which is about to happen."""
    try:
        now = state()
        against = next((what for what in at_start if now[what] != at_start[what]), "")
        _leave(wire.IMPORTS_SUFFIX, against=against, files=_own_files())
    except Exception as error:  # there is then no standby
        page.note("imports", error)


def _leave(suffix: str, **more: Any) -> None:
    content = {"version": wire.IMPORTS_VERSION, "path": sys.path, "finders": _finders(), **more}
    page.leave(suffix, json.dumps(content).encode())


def _finders() -> list[str]:
    """Name who is asked for modules, but for ourselves."""
    asked = (*sys.meta_path, *sys.path_hooks)
    named = [getattr(finder, "__name__", type(finder).__name__) for finder in asked]
    return [name for name in named if name not in ("Finder", "Recorder", "Held")]


def _own_files() -> dict[str, list[int]]:
    """Return the user's own modules, with what tells that one was edited."""
    installed = tuple({os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix)})
    found: dict[str, list[int]] = {}
    for module in list(sys.modules.values()):
        origin = os.path.abspath(getattr(module, "__file__", None) or os.devnull)
        if not origin.startswith(installed) and len(found) < MOST_FILES:
            found |= _stamp(origin)
    return {path: stamp for path, stamp in found.items() if "_rocsteady_inside" not in path}


def _stamp(path: str) -> dict[str, list[int]]:
    try:
        about = os.stat(path)
    except OSError:
        return {}
    return {path: [about.st_mtime_ns, about.st_size]}


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:  # some kernels have no such list
        return ""


def _opened_device() -> str:
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    opened += [line.rpartition(" ")[2] for line in _content("/proc/self/maps").splitlines()]
    return next((path for path in opened if path.startswith(DEVICES)), "")


def stand_by() -> None:
    """Import torch, report it, and return when this is the next attempt."""
    order = os.path.join(SITE, "standby")
    os.rename(order, order + wire.TAKEN)  # whoever is started from here on is no standby
    held, against = Held(), "torch is imported before the script" if TORCH in sys.modules else ""
    sys.meta_path.insert(0, held)
    against = against or _import_torch()
    torch: Any = sys.modules[TORCH]
    installed = _stamp(os.path.dirname(os.path.dirname(torch.__file__)))
    _leave(wire.READY_SUFFIX, against=against, files=installed, names=sorted(held.asked))
    if against:
        os._exit(0)
    with open(os.path.join(SITE, "turn"), encoding="utf-8") as stream:  # blocks until it is opened
        _take_turn(**json.load(stream))
    held.hide()


def _import_torch() -> str:
    """Return what of it a script could see too early; "": nothing."""
    before, seen = hooks.before, (dict(os.environ), [*sys.path], _finders())
    hooks.before = lambda *_: None  # it is called when the script imports torch
    __import__(TORCH)
    hooks.before = before
    for output in (sys.stdout, sys.stderr):  # the supervisor looks whether anything was printed
        if output is not None:
            output.flush()
    if seen != (dict(os.environ), sys.path, _finders()):
        return "importing torch changes what other imports see"
    return f"importing torch opens {device}" if (device := _opened_device()) else ""


def _take_turn(arguments: list[str], environment: dict[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    _move(os.environ[wire.PAGES])
    count = len(sys.argv) - 1
    for words in (sys.argv, getattr(sys, "orig_argv", [])):  # the latter since Python 3.10
        words[len(words) - count :] = arguments


def _move(pages: str) -> None:
    """Use the folders of the attempt: those of the standby are about to be removed."""
    page.FOLDER = pages
    package = __package__ or ""
    for name in (package, f"{package}.heartbeat"):
        ours: Any = sys.modules[name]
        new = os.path.join(os.path.dirname(pages), "site")
        ours.__path__ = [path.replace(SITE, new, 1) for path in ours.__path__]


if os.path.exists(os.path.join(SITE, "standby")):
    stand_by()
else:
    sys.meta_path.insert(1, Recorder())  # behind sitecustomize's own
at_start.update(state())
