"""The standby of a run: the next attempt's interpreter, which has imported torch and waits.

It is the very command of the next attempt, started early below a keeper of its own; what lets it
import and wait is in ``rocsteady_train.inside.standby``. docs/decisions/0032 says when it is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_regular

from rocsteady.errors import RocsteadyError
from rocsteady.hangs.heartbeat_pages import read_pages
from rocsteady.hangs.looking.cgroups import ROOT, read
from rocsteady.hangs.looking.memory import read_memory
from rocsteady.model import RunState, Value
from rocsteady.run.attempt.injection import Injection, inject, lay_out, remove
from rocsteady.run.engines.processes import AttemptProcesses, Engine
from rocsteady.run.telling.announcer import Announcer
from rocsteady.store.values import Sample
from rocsteady.system.child import Start, WaitingCommand

ORDER, TURN = "standby", "turn"  # files beside sitecustomize.py
PACE_AFTER = 3.0  # seconds of steps, after which the pace is known
LOOK_EVERY = 10.0  # seconds between looks at the free memory
LONGEST_START = 2.0  # seconds to our first line in a standby
LEAST_IMPORT = 1.0  # seconds; what takes less is not worth a process
EXPECTED_SIZE = 400 * 2**20  # bytes, before one was measured
SPARE = 3  # times its size must be free
LIMIT = 1024 * 1024  # bytes of a report
PIPE_SIZE = 65536  # bytes that a pipe takes at once
MEGABYTE = 1_000_000
# Read by rocsteady_train when training begins, and by nothing that is imported ahead.
LATE_VARIABLES = {wire.RESUME_FROM, wire.SAVE_AFTER, wire.BETWEEN_FAILURES}


class Import(Value, frozen=True, kw_only=True):
    """One of the imports of an attempt, as it was when that began."""

    name: str
    origin: str | None
    against: str  # why it cannot be done ahead of the script; "": it can
    seconds: float  # 0: it was done ahead
    path: tuple[str, ...]
    finders: tuple[str, ...]
    files: dict[str, tuple[int, int]]  # the user's own modules by then: time and size


class Imports(Value, frozen=True, kw_only=True):
    version: int
    imports: tuple[Import, ...]


class Ready(Value, frozen=True, kw_only=True):
    """What a standby reports before it waits."""

    version: int
    against: str
    seconds: float
    names: tuple[str, ...]  # of all top-level modules that it has
    missing: tuple[str, ...]  # of those that it looked for and did not find
    path: tuple[str, ...]  # on which it found them
    arguments: int  # words of its command that are the script's


@dataclass(kw_only=True)
class _Started:
    """How an attempt was started."""

    start: Start
    pid: int
    ahead: tuple[str, ...] = ()  # what a standby had imported for it
    first_step: float | None = None
    considered: bool = False


@dataclass(kw_only=True)
class _Waiting:
    """A standby, and what must still be so when its turn comes."""

    process: WaitingCommand
    injection: Injection
    start: Start
    imports: tuple[str, ...]
    files: Mapping[str, tuple[int, int]]
    path: Sequence[str]
    seconds: float  # that the imports took in the attempt
    started: float = field(default_factory=time.monotonic)
    looked: float = field(default_factory=time.monotonic)
    obeys: bool = False  # it carries out its order
    ready: Ready | None = None

    def report(self) -> Ready | None:
        """Read its report, once it has imported everything."""
        if self.ready is None:
            file = self.injection.pages / f"{self.process.pid}{wire.READY_SUFFIX}"
            self.ready = _read(file, Ready)
        return self.ready

    def may_reach_script(self, now: float) -> bool:
        """Whether nothing was heard of our part in it for half as long as the imports take.

        Were it not to wait, it would still have to import torch before it could train.
        """
        self.obeys = self.obeys or (self.injection.site / (ORDER + wire.TAKEN)).exists()
        return not self.obeys and now - self.started > min(self.seconds / 2, LONGEST_START)

    @property
    def size(self) -> int:
        return _size(self.process.pid)


class Standby:
    """Starts attempts as another engine does, from a standby where that makes no difference."""

    def __init__(self, engine: Engine, announcer: Announcer, owner: str) -> None:
        self._engine, self._announcer, self._owner = engine, announcer, owner
        self._attempt: _Started | None = None
        self._waiting: _Waiting | None = None
        self._seconds: dict[str, float] = {}  # that imports took, by name
        self._given_up = False

    def __call__(self, start: Start) -> AttemptProcesses:
        """Start an attempt."""
        ahead = self._waiting.imports if self._waiting is not None else ()
        child = self._take(start)
        if child is None:
            ahead = ()
            with contextlib.suppress(KeyError, OSError):
                (Path(start.environment[wire.PAGES]) / wire.STANDBY_WANTED).touch()
            child = self._engine(start)
        self._attempt = _Started(start=start, pid=child.pid, ahead=ahead)
        return child

    def injection(self, run_id: str) -> Injection | None:
        """Return what the standby of this attempt was given; None: there is none."""
        waiting = self._waiting
        return waiting.injection if waiting is not None and waiting.start.run_id == run_id else None

    def seen(self, sample: Sample) -> None:
        """Start one while the attempt trains well, and end it if memory gets scarce."""
        attempt, waiting, now = self._attempt, self._waiting, time.monotonic()
        if waiting is not None and waiting.may_reach_script(now):
            self.discard()  # on a busy machine the next one may be quicker
            self._announcer.note("the standby took long to start and was ended.")
        elif waiting is not None and now - waiting.looked >= LOOK_EVERY:
            waiting.looked = now
            report = waiting.report()
            if report is not None and report.against:
                self._give_up(report.against)
            elif not waiting.process.is_waiting():
                self.discard()
                self._announcer.note("the standby ended, or printed something.")
            elif lacks_memory(waiting.size):
                self._give_up("memory is short")
        if attempt is None or attempt.considered or self._given_up:
            return
        if sample.verdict is not RunState.HEALTHY or not sample.step:
            attempt.first_step = None
        elif attempt.first_step is None:
            attempt.first_step = now
        elif now - attempt.first_step >= PACE_AFTER:
            attempt.considered = True
            self._prepare(attempt)

    def discard(self) -> None:
        """End the standby, if there is one."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.process.end()
            remove(waiting.injection.pages.parent)

    def _give_up(self, why: str) -> None:
        self.discard()
        self._given_up = True
        self._announcer.note(f"no standby: {why}.")

    def _prepare(self, attempt: _Started) -> None:
        pages = Path(attempt.start.environment.get(wire.PAGES, ""))
        if not any(beat.pid == attempt.pid and beat.step for beat in read_pages(pages)):
            self._announcer.note("no standby: the command itself does not train, it starts others.")
            return
        found = _read(pages / f"{attempt.pid}{wire.IMPORTS_SUFFIX}", Imports)
        imports = found.imports if found else ()
        ahead = []
        for each in imports:
            self._seconds[each.name] = max(each.seconds, self._seconds.get(each.name, 0.0))
            if each.against and each.name in attempt.ahead:
                self._given_up = True
                self._announcer.say(
                    f"{each.against}, and did not in the attempt before: {each.name} was imported"
                    " earlier and has not seen it. Leave out --standby for this script."
                )
                return
            if each.against:
                self._announcer.note(f"standby without {each.name}: {each.against}.")
                break
            ahead.append(each)
        if not ahead or sum(self._seconds[each.name] for each in ahead) < LEAST_IMPORT:
            return
        if on_battery() or lacks_memory(EXPECTED_SIZE):
            self._announcer.note("no standby: on battery, or memory is short.")
            return
        try:
            self._waiting = self._start(attempt, ahead)
        except (OSError, RocsteadyError) as error:
            self._give_up(str(error))

    def _start(self, attempt: _Started, ahead: Sequence[Import]) -> _Waiting:
        run, _, number = attempt.start.run_id.rpartition("-")
        run_id = f"{run}-{int(number) + 1}"
        environment = dict(attempt.start.environment)
        ours = str(Path(environment[wire.PAGES]).with_name("site"))
        theirs = environment["PYTHONPATH"].removeprefix(ours).removeprefix(os.pathsep)
        injection = inject(run_id, environment, self._owner)
        try:
            environment |= injection.environment(
                {"PYTHONPATH": theirs}, run_id=run_id, supervisor=os.getpid()
            )
            turn = injection.site / TURN
            os.mkfifo(turn, 0o600)
            (injection.pages / wire.STANDBY_WANTED).touch()
            order = {
                "imports": {each.name: each.origin for each in ahead},
                "finders": ahead[0].finders,
                "turn": str(turn),
                "command": attempt.start.command,
            }
            (injection.site / ORDER).write_text(json.dumps(order))
            start = replace(attempt.start, environment=environment, run_id=run_id)
            process = WaitingCommand(start)
        except BaseException:
            remove(injection.pages.parent)
            raise
        return _Waiting(
            process=process,
            injection=injection,
            start=start,
            imports=tuple(each.name for each in ahead),
            files={path: about for each in ahead[::-1] for path, about in each.files.items()},
            path=ahead[-1].path,
            seconds=sum(self._seconds[each.name] for each in ahead),
        )

    def _take(self, start: Start) -> AttemptProcesses | None:
        """Let the standby become the attempt; None, and it is ended, if anything differs."""
        waiting = self._waiting
        if waiting is None:
            return None
        self._waiting = None
        changed = changes(waiting.start.environment, start.environment)
        differs = min(changed.keys() - LATE_VARIABLES, default="")
        order = json.dumps({"command": start.command, "environment": changed}).encode()
        size, turn = waiting.size, -1
        against = (
            "it is of another attempt" if start.run_id != waiting.start.run_id else
            f"{differs} differs" if differs else
            "its arguments are too long" if len(order) > PIPE_SIZE else
            _against(waiting, start.command)
        )  # fmt: skip
        if not against:
            try:
                turn = os.open(waiting.injection.site / TURN, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                against = "it does not wait"
        if against:
            waiting.process.end()
            clear = lay_out if start.run_id == waiting.start.run_id else remove
            clear(waiting.injection.pages.parent)
            self._announcer.note(f"not restarted from the standby: {against}.")
            return None
        try:
            child = waiting.process.watched(start)
        except BaseException:
            waiting.process.end()
            os.close(turn)
            raise
        with contextlib.suppress(OSError):  # it has ended just now, as an attempt may
            os.write(turn, order)
        os.close(turn)
        (waiting.injection.site / TURN).unlink()
        self._announcer.note(f"restarted from a standby ({size / MEGABYTE:.0f} MB).")
        return child


def _against(waiting: _Waiting, command: Sequence[str]) -> str:
    """Return what differs by now from what the standby was started for; "": nothing."""
    ready = waiting.report()
    if ready is None or not waiting.process.is_waiting():
        return "it is not ready, has ended or printed something"
    if ready.against:
        return ready.against
    head = len(waiting.start.command) - ready.arguments
    if tuple(command[:head]) != tuple(waiting.start.command[:head]):
        return "the command is another"
    for path, about in waiting.files.items():
        if _stamp(path) != tuple(about):
            return f"{path} was edited"
    for folder in moved_ahead(ready.path, waiting.path):
        if shadowing := shadows(waiting.start.folder / folder, ready.names, ready.missing):
            return f"{shadowing} would be imported instead"
    return ""


def moved_ahead(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return the folders in which a module is looked for earlier than before."""
    return [
        folder
        for position, folder in enumerate(now)
        if folder not in before or not {*before[: before.index(folder)]} <= {*now[:position]}
    ]


def shadows(folder: Path, names: Sequence[str], missing: Sequence[str]) -> str:
    """Return what in a folder of the script's has the name of a module looked for already."""
    if folder.is_file():
        return str(folder)  # an archive of modules
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return ""
    for path in found:
        name = path.name.partition(".")[0]
        is_module = path.suffix in (".py", ".pyc", ".so") or (path / "__init__.py").exists()
        if (name in names and is_module) or (name in missing and (is_module or path.is_dir())):
            return str(path)
    return ""


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that differ, with their new values; None: there is none now."""
    names = before.keys() | now.keys()
    return {name: now.get(name) for name in names if before.get(name) != now.get(name)}


def lacks_memory(size: int, root: Path = ROOT) -> bool:
    """Whether less than three times as much is free, on the machine or in our control groups."""
    memory = read_memory((os.getpid(),), root)
    limits = [(group.limit_bytes, group.used_bytes) for group in memory.groups]
    left = [limit - used for limit, used in limits if limit is not None and used is not None]
    free = [memory.machine.get("MemAvailable", 0), *left]
    return min(free) < SPARE * size


def on_battery(root: Path = ROOT) -> bool:
    supplies = [
        read(path / "online").strip()
        for path in (root / "sys/class/power_supply").glob("*")
        if read(path / "type").strip() == "Mains"
    ]
    return bool(supplies) and "1" not in supplies


def _size(pid: int) -> int:
    """Return the bytes that a process has for itself."""
    sizes = read_memory((pid,)).processes.get(pid, {})
    return sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0)


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        about = Path(path).stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


Report = TypeVar("Report", Imports, Ready)


def _read(path: Path, kind: type[Report]) -> Report | None:
    try:
        found = msgspec.json.decode(read_regular(path, LIMIT, follow=False), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.version == wire.IMPORTS_VERSION else None
