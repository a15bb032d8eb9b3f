"""A standby: an interpreter of the next attempt that has imported torch and waits for its turn.

In an attempt, ``Preload`` leaves what was imported and whether that can be done ahead of the
script. In a standby, ``wait`` does it, at the end of ``sitecustomize``, and blocks; when it
returns, Python goes on as always: it opens the script and runs it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from types import BuiltinFunctionType, ModuleType
from typing import Any

from . import wire
from .heartbeat import page

# What is imported ahead, in the order in which it can be. Each was run under strace: it opens no
# device, and starts no thread but the one that torch starts.
ROOTS = ("torch", "torch._dynamo")
# Packages with libraries of their own that may be loaded on the way: numpy starts OpenBLAS's
# threads, as it does in any attempt; the others compute only.
KNOWN_LIBRARIES = ("torch", "functorch", "numpy", "markupsafe", "yaml", "_yaml", "psutil")
RELATED = ("functorch",)  # imports torch, and is imported by it
DEVICES = ("/dev/kfd", "/dev/dri", "/dev/nvidia", "/dev/accel")
DEFAULT_FILTERS = 5  # of warnings, beside those that -W asks for
SET_BY_PYTHON = "LC_CTYPE"  # in the C locale
MADE_BY_OTHERS = ("__main__", "__mp_main__", "cython_runtime", "_cython_")  # modules without a file
MOST_FILES = 2000


class Preload:
    """What an attempt leaves about its imports, for a standby of the next one."""

    def __init__(self) -> None:
        self._imports: list[dict[str, Any]] = []
        self._libraries: set[str] = set()
        self._environment: dict[str, str] = {}
        self._began = 0.0

    def begins(self, name: str, module: ModuleType) -> None:
        """Be told that one of ROOTS is about to be run."""
        if not _is_wanted():
            return
        self._libraries, self._environment = _libraries(), dict(os.environ)
        self._began = time.monotonic()
        against = _against()
        if name == ROOTS[0] and (others := self._libraries.difference(KNOWN_LIBRARIES)):
            against = against or f"{min(others)} is imported before torch"
        self._imports.append({
            "name": name,
            "origin": getattr(module.__spec__, "origin", ""),
            "against": against,
            "seconds": 0.0,
            "path": [*sys.path],
            "finders": finders(),
            "files": _own_files() | _installed(module),
        })  # fmt: skip
        self._leave()

    def ends(self, name: str, module: ModuleType) -> None:
        if not self._imports or self._imports[-1]["name"] != name:
            return
        last = self._imports[-1]
        last["seconds"] = time.monotonic() - self._began
        imported_filters[:] = _filters()
        last["files"] |= _installed(module)  # its first import may have made a __pycache__
        imported_modules.update(_made_modules())
        imported_environment.update(changes(self._environment, dict(os.environ)))
        if others := _libraries() - self._libraries - set(KNOWN_LIBRARIES):
            last["against"] = last["against"] or f"it loads libraries of {min(others)}"
        self._leave()

    def _leave(self) -> None:
        content = {"version": wire.IMPORTS_VERSION, "imports": self._imports}
        page.leave(wire.IMPORTS_SUFFIX, json.dumps(content).encode())


def _is_wanted() -> bool:
    return os.path.exists(os.path.join(page.FOLDER, wire.STANDBY_WANTED)) and not page.is_child()


def _against() -> str:
    """Return what the script has changed by now that an import ahead of it would not see."""
    monitoring = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(number) for number in range(6)] if monitoring else []
    by_process = (
        "a debugger or profiler is on"
        if sys.gettrace() or sys.getprofile() or any(tools)
        else "the script replaces its output first"  # torch's loggers write to what is there
        if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__
        else "the script chooses its processors first"
        if os.sched_getaffinity(0) != os.sched_getaffinity(os.getppid())
        else "the script chooses how libraries are loaded first"
        if sys.getdlopenflags() != os.RTLD_NOW
        else "the script starts other processes first"
        if _has_children()
        else ""
    )
    return _against_variables() or by_process or _against_modules() or _against_filters()


def _against_variables() -> str:
    first = given_environment or _environment_at_start()
    for name, value in changes(first, dict(os.environ)).items():
        by_python = name == SET_BY_PYTHON and name not in first
        by_torch = name in imported_environment and imported_environment[name] == value
        if not by_python and not by_torch:
            return f"the script sets {name} first"
    return ""


def _against_modules() -> str:
    if made := _made_modules() - imported_modules:
        return f"the script replaces {min(made)} first"
    if not isinstance(__import__, BuiltinFunctionType):
        return "the script has an import of its own"
    logging: Any = sys.modules.get("logging")
    if logging and logging.getLoggerClass() is not logging.Logger:
        return "the script chooses its loggers first"
    if "logging.config" in sys.modules:  # by default it silences the loggers that exist by then
        return "the script configures logging first"
    return ""


def _made_modules() -> set[str]:
    """Return the names under which something was put that no file was imported for."""
    modules: dict[str, Any] = dict(sys.modules)
    return {
        name
        for name, module in modules.items()
        if (module is None or (type(module) is ModuleType and module.__spec__ is None))
        and not name.startswith(MADE_BY_OTHERS)
    }


def _against_filters() -> str:
    warnings = sys.modules.get("warnings")
    if warnings and len(warnings.filters) < DEFAULT_FILTERS + len(sys.warnoptions):
        return "the script removes filters of warnings first"
    for entry in _filters():
        _action, message, category, module, _line = entry
        if category.__module__ != "builtins":  # of a package, as numpy's own
            continue
        if message is None and module is None and entry not in imported_filters:
            return "the script filters warnings first"
    return ""


def _has_children() -> bool:
    """Whether a process was started that lives; it would be a copy of what was imported ahead."""
    lists = [f"/proc/self/task/{thread}/children" for thread in os.listdir("/proc/self/task")]
    for path in filter(os.path.exists, lists):  # some kernels have no such list
        with open(path, encoding="ascii") as stream:
            if stream.read():
                return True
    return False


imported_filters: list[Any] = []  # that the imports brought themselves
imported_modules: set[str] = set()  # that the imports made themselves
imported_environment: dict[str, str | None] = {}  # that the imports changed themselves
given_environment: dict[str, str] = {}  # of a standby, by its turn


def changes(before: dict[str, str], now: dict[str, str]) -> dict[str, str | None]:
    """Return the variables that differ, with their new values; None: there is none now."""
    names = before.keys() | now.keys()
    return {name: now.get(name) for name in names if before.get(name) != now.get(name)}


def _environment_at_start() -> dict[str, str]:
    with open("/proc/self/environ", "rb") as stream:
        pairs = [entry.split(b"=", 1) for entry in stream.read().split(b"\0") if b"=" in entry]
    return {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}


def _filters() -> list[Any]:
    """Return the filters of warnings that came since Python was started: new ones go first."""
    filters = list(getattr(sys.modules.get("warnings"), "filters", ()))
    return filters[: max(0, len(filters) - DEFAULT_FILTERS - len(sys.warnoptions))]


def finders() -> list[str]:
    """Name who is asked for modules, but for ourselves."""
    asked = (*sys.meta_path, *sys.path_hooks)
    named = [getattr(finder, "__name__", type(finder).__name__) for finder in asked]
    return [name for name in named if name != "Finder"]


def _libraries() -> set[str]:
    """Return the packages outside of Python's own that have a library loaded."""
    found = set()
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if isinstance(origin, str) and origin.endswith(".so") and "lib-dynload" not in origin:
            found.add(name.partition(".")[0])
    return found


def _own_files() -> dict[str, list[int]]:
    """Return the user's own modules, with what tells that one was edited."""
    installed = tuple({os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix)})
    found: dict[str, list[int]] = {}
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if not isinstance(origin, str) or len(found) > MOST_FILES:
            continue
        whole = os.path.abspath(origin)
        if not whole.startswith(installed) and "_rocsteady_inside" not in whole:
            found |= _stamp(whole)
    return found


def _installed(module: ModuleType) -> dict[str, list[int]]:
    """Return the folder that a package was installed in: it changes with any installation."""
    return _stamp(os.path.dirname(os.path.dirname(module.__file__ or "")))


def _stamp(path: str) -> dict[str, list[int]]:
    try:
        about = os.stat(path)
    except OSError:
        return {}
    return {path: [about.st_mtime_ns, about.st_size]}


class Held:
    """One of ROOTS that was imported ahead, out of sight until the script imports it."""

    def __init__(self, name: str, variables: dict[str, str | None]) -> None:
        self.module = sys.modules[name]
        self._name, self._variables = name, variables
        self._parts: dict[str, ModuleType] = {}

    def hide(self) -> None:
        """Take it and its parts away: whoever imports one of these imports this first."""
        names = (self._name, *RELATED) if self._name == ROOTS[0] else (self._name,)
        for name in [*sys.modules]:
            if name in names or name.startswith(tuple(f"{each}." for each in names)):
                self._parts[name] = sys.modules.pop(name)
        above, _, last = self._name.rpartition(".")
        if above:
            vars(sys.modules[above]).pop(last, None)

    def show(self) -> None:
        sys.modules.update(self._parts)
        set_environment(self._variables)
        imported_environment.update(self._variables)


def wait(order: str, asked_for: set[str]) -> dict[str, Held]:
    """Import what the order names, report it, block; give the modules once it is our turn."""
    os.rename(order, order + wire.TAKEN)  # whoever is started from here on is no standby
    with open(order + wire.TAKEN, encoding="utf-8") as stream:
        asked = json.load(stream)
    first = dict(os.environ)
    began = time.monotonic()
    served, lowered = finders(), _at_low_priority()
    against = "" if served == asked["finders"] else "imports are served by others"
    held: dict[str, Held] = {}
    for name in asked["imports"]:
        if name in sys.modules:
            against = against or f"{name} is imported before the script"
        before = dict(os.environ)
        __import__(name)
        held[name] = Held(name, changes(before, dict(os.environ)))
    for output in (sys.stdout, sys.stderr):  # the supervisor looks whether anything was printed
        if output is not None:
            output.flush()
    against = against or _unlike(asked, held)
    names = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
    report = {
        "version": wire.IMPORTS_VERSION,
        "against": against,
        "seconds": time.monotonic() - began,
        "names": sorted(names),
        "missing": sorted(asked_for - names - {"__main__"}),
        "path": [*sys.path],
        "arguments": len(sys.argv) - 1,
    }
    page.leave(wire.READY_SUFFIX, json.dumps(report).encode())
    if against:
        os._exit(0)
    with open(asked["turn"], encoding="utf-8") as stream:  # blocks until the supervisor opens it
        turn = json.load(stream)
    set_environment({**dict.fromkeys(os.environ), **first, **turn["environment"]})
    given_environment.update(os.environ)
    _take_arguments(asked["command"], turn["command"])
    imported_filters[:] = _filters()
    imported_modules.update(_made_modules())
    if lowered:
        _at_usual_priority()
    for name in reversed(held):  # inner ones first
        held[name].hide()
    return held


def set_environment(wanted: dict[str, str | None]) -> None:
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        elif os.environ.get(name) != value:
            os.environ[name] = value


def _unlike(asked: dict[str, Any], held: dict[str, Held]) -> str:
    """Return why this process is not what the attempt was at the same point."""
    import site  # noqa: PLC0415 - imported long since, but by -S

    for name, origin in asked["imports"].items():
        if getattr(held[name].module.__spec__, "origin", "") != origin:
            return f"{name} is another one"
    if site.ENABLE_USER_SITE and _exists("usercustomize"):
        return "there is a usercustomize"
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
        opened += [line.rpartition(" ")[2].strip() for line in stream]
    for path in opened:
        if path.startswith(DEVICES):
            return f"importing it opens {path}"
    return ""


def _exists(name: str) -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - only here

    return find_spec(name) is not None


def _take_arguments(before: list[str], now: list[str]) -> None:
    """Put the arguments of this attempt in place of those that the standby was started with."""
    count = len(sys.argv) - 1
    head = len(before) - count
    if before[:head] != now[:head]:
        raise ValueError("another program")
    sys.argv[1:] = now[head:]
    words = getattr(sys, "orig_argv", None)  # since Python 3.10
    if words is not None:
        words[len(words) - count :] = now[head:]


def _at_low_priority() -> bool:
    """Let others go first, in a way that can be undone; False where it is not the usual one now."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    return True


def _at_usual_priority() -> None:
    for thread in os.listdir("/proc/self/task"):
        os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
