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
from types import ModuleType
from typing import Any

from . import wire
from .heartbeat import page

# What is imported ahead, in the order in which it can be. Each was run under strace: it opens no
# device, and starts no thread but the one that torch starts.
ROOTS = ("torch", "torch._dynamo")
# Packages with libraries of their own that may be loaded on the way: numpy starts OpenBLAS's
# threads, as it does in any attempt; the others compute only.
KNOWN_LIBRARIES = ("torch", "functorch", "numpy", "markupsafe", "yaml", "_yaml", "psutil")
DEVICES = ("/dev/kfd", "/dev/dri", "/dev/nvidia", "/dev/accel")
DEFAULT_FILTERS = 5  # of warnings, beside those that -W asks for
SET_BY_PYTHON = "LC_CTYPE"  # in the C locale
MOST_FILES = 2000


class Preload:
    """What an attempt leaves about its imports, for a standby of the next one."""

    def __init__(self) -> None:
        self._imports: list[dict[str, Any]] = []
        self._libraries: set[str] = set()
        self._began = 0.0

    def begins(self, name: str, module: ModuleType) -> None:
        """Be told that one of ROOTS is about to be run."""
        if not _is_wanted():
            return
        self._libraries, self._began = _libraries(), time.monotonic()
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
            "files": _own_files(),
        })  # fmt: skip
        self._leave()

    def ends(self, name: str) -> None:
        if not self._imports or self._imports[-1]["name"] != name:
            return
        last = self._imports[-1]
        last["seconds"] = time.monotonic() - self._began
        imported_filters[:] = _filters()
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
    first = given_environment or _environment_at_start()
    now = dict(os.environ)
    for name in {**first, **now}:
        if first.get(name) != now.get(name) and not (name == SET_BY_PYTHON and name not in first):
            return f"the script sets {name} first"
    monitoring = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(number) for number in range(6)] if monitoring else []
    if sys.gettrace() or sys.getprofile() or any(tools):
        return "a debugger or profiler is on"
    if None in sys.modules.values():
        return "the script forbids an import first"
    if os.sched_getaffinity(0) != os.sched_getaffinity(os.getppid()):
        return "the script chooses its processors first"
    for entry in _filters():
        _action, message, _category, module, _line = entry
        if message is None and module is None and entry not in imported_filters:
            return "the script filters warnings first"
    return ""


imported_filters: list[Any] = []  # that the imports brought themselves
given_environment: dict[str, str] = {}  # of a standby, by its turn


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
    named = [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path]
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
            try:
                about = os.stat(whole)
            except OSError:
                continue
            found[whole] = [about.st_mtime_ns, about.st_size]
    return found


def wait(order: str) -> dict[str, ModuleType]:
    """Import what the order names, report it, block; give the modules once it is our turn."""
    os.rename(order, order + wire.TAKEN)  # whoever is started from here on is no standby
    with open(order + wire.TAKEN, encoding="utf-8") as stream:
        asked = json.load(stream)
    first = dict(os.environ)
    began = time.monotonic()
    served, lowered = finders(), _at_low_priority()
    for name in asked["imports"]:
        __import__(name)
    held = {name: sys.modules[name] for name in asked["imports"]}
    for output in (sys.stdout, sys.stderr):  # the supervisor looks whether anything was printed
        if output is not None:
            output.flush()
    against = "" if served == asked["finders"] else "imports are served by others"
    against = against or _unlike(asked, held)
    names = sorted({name.partition(".")[0] for name in sys.modules})
    report = {
        "version": wire.IMPORTS_VERSION,
        "against": against,
        "seconds": time.monotonic() - began,
        "names": names,
        "path": [*sys.path],
        "arguments": len(sys.argv) - 1,
    }
    page.leave(wire.READY_SUFFIX, json.dumps(report).encode())
    if against:
        os._exit(0)
    with open(asked["turn"], encoding="utf-8") as stream:  # blocks until the supervisor opens it
        turn = json.load(stream)
    _set_environment({**first, **turn["environment"]})
    given_environment.update(os.environ)
    _take_arguments(asked["command"], turn["command"])
    imported_filters[:] = _filters()
    if lowered:
        _at_usual_priority()
    for name in sorted(held, reverse=True):  # inner ones first
        del sys.modules[name]
        above, _, last = name.rpartition(".")
        if above:
            vars(sys.modules.get(above) or held[above]).pop(last, None)
    return held


def _set_environment(wanted: dict[str, str | None]) -> None:
    """Undo what the imports have set, and set what belongs to this attempt."""
    for name in [*os.environ]:
        if wanted.get(name) is None:
            del os.environ[name]
    for name, value in wanted.items():
        if value is not None and os.environ.get(name) != value:
            os.environ[name] = value


def _unlike(asked: dict[str, Any], held: dict[str, ModuleType]) -> str:
    """Return why this process is not what the attempt was at the same point."""
    import site  # noqa: PLC0415 - imported long since, but by -S

    for name, module in held.items():
        if getattr(module.__spec__, "origin", "") != asked["imports"][name]:
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
