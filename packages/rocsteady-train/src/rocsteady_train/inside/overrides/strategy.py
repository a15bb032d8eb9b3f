"""The settings that this process was told to apply, and the record of what came of each."""

from __future__ import annotations

import atexit
import json
import os
import threading
from typing import Any

from .. import wire
from ..heartbeat import page

# What a value must be. A strategy of which anything is not understood is not applied at all.
CHOICES: dict[str, tuple[Any, ...]] = {
    "worker_context": ("fork", "forkserver", "spawn"),
    "attention": ("math", "efficient", "flash"),
    "miopen": (False,),
    "precision": ("bf16", "fp16", "fp32"),
    "persistent_workers": (False, True),
    "compile": (False,),
}
LEAST = {"workers": 0, "prefetch_factor": 1}
BY_VARIABLES = ("gpus",)  # in force anyway: it is no news where there is nothing to act on here
TEXT = 400  # characters of a reason
FIRST = 16  # so many are written down one by one; then at each doubling, and at the end


def asked(text: str) -> dict[str, Any]:
    """Read what was asked for. Raises ValueError."""
    settings = json.loads(text)
    if not isinstance(settings, dict) or settings.pop("version", None) != wire.STRATEGY_VERSION:
        raise ValueError(f"not of version {wire.STRATEGY_VERSION}")
    for name, value in settings.items():
        if name not in wire.SETTINGS or not _is_known(name, value):
            raise ValueError(f"{name} = {value!r} is not known here")
    return settings


def _is_known(name: str, value: object) -> bool:
    if name == "gpus":
        return isinstance(value, list) and {type(each) for each in value} == {int}
    if name in LEAST:
        return type(value) is int and value >= LEAST[name]
    return any(type(value) is type(choice) and value == choice for choice in CHOICES[name])


class Record:
    """Counts what was applied and refused, and keeps it where a crash does not take it along."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = tuple(name for name in settings if name not in BY_VARIABLES)
        self._pid = 0
        self._outcomes: dict[tuple[str, str], list[Any]] = {}  # times, why
        self._writing = threading.Lock()
        if not page.is_child():  # one of those may be a loader's worker; it writes when it acts
            self._write()
        atexit.register(self._at_exit)

    def applied(self, setting: str, why: str = "") -> None:
        """Record that a setting was put in force once more."""
        self._count(setting, "applied", why)

    def refused(self, setting: str, why: str) -> None:
        """Record that a setting would do harm here, and why."""
        self._count(setting, "refused", why)

    def _count(self, setting: str, outcome: str, why: str) -> None:
        if page.is_loader_worker():
            return
        if self._pid != os.getpid():  # forked: what was told is the parent's
            self._outcomes.clear()
            self._writing = threading.Lock()
        entry = self._outcomes.setdefault((setting, outcome), [0, ""])
        entry[0] += 1
        entry[1] = why or entry[1]
        times = entry[0]
        if times <= FIRST or times & (times - 1) == 0:
            self._write()

    def _write(self) -> None:
        self._pid = os.getpid()
        if not self._writing.acquire(blocking=False):
            return  # another thread writes almost the same
        try:
            page.leave(wire.APPLIED_SUFFIX, json.dumps(self._content()).encode())
        except OSError as error:  # the setting is in force all the same
            page.note("strategy", error)
        finally:
            self._writing.release()

    def _content(self) -> dict[str, Any]:
        records = [
            {"setting": setting, "outcome": outcome, "times": times, "why": why[:TEXT]}
            for (setting, outcome), (times, why) in list(self._outcomes.items())
        ]
        return {"version": wire.APPLIED_VERSION, "asked": self._settings, "told": records}

    def _at_exit(self) -> None:
        if self._pid == os.getpid() and self._outcomes:
            self._write()
