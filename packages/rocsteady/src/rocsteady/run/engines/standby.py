"""The standby of a run: the next attempt's interpreter, which has imported torch and waits.

It is the very command of the next attempt, started early below a keeper of its own; what lets it
import and wait is in ``rocsteady_train.inside.standby``. docs/decisions/0032 says when it is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from rocsteady_train.inside import wire

from rocsteady.errors import JournalError
from rocsteady.hangs.heartbeat_pages import read_pages
from rocsteady.hangs.looking.cgroups import ROOT
from rocsteady.hangs.looking.memory import read_memory
from rocsteady.model import Value
from rocsteady.run.attempt.injection import Injection, inject, remove
from rocsteady.run.context import Services
from rocsteady.run.engines.plain_command import AttemptProcesses, start_command
from rocsteady.store.values import RunRecord
from rocsteady.system.child import Start, WaitingCommand
from rocsteady.system.real_path import time_and_size
from rocsteady.typed_values import read_json

FAILURES = 3  # of a run, before a standby is thought of
RESTART_SHARE = 0.1  # of the time since the run began
JOURNAL_WITHIN = timedelta(seconds=1)
ORDER, IMPORTS, TURN = "standby", "imports", "turn"  # files beside sitecustomize.py
LOOK_EVERY = 0.5  # seconds
PACE_AFTER = 3.0  # seconds of steps, after which an attempt is taken to train
CHECK_EVERY = 10.0  # seconds between looks at the standby itself and at the free memory
LONGEST_START = 2.0  # seconds to our first line in a standby
EXPECTED_SIZE = 400 * 2**20  # bytes, before one was measured
SPARE_FACTOR = 3  # times its size must be free
REPORT_BYTES = 1024 * 1024  # bytes of a report
PIPE_SIZE = 65536  # bytes that a pipe takes at once
MEGABYTE = 1_000_000
# Read by rocsteady_train when training begins, and by nothing that is imported ahead.
LATE_VARIABLES = {wire.RESUME_FROM, wire.SAVE_AFTER, wire.BETWEEN_FAILURES}
PLACES = {wire.PAGES, "PYTHONPATH"}  # of a standby's own folder


class ImportReport(Value, frozen=True, kw_only=True):
    """How an attempt came to import torch, or a standby did it ahead."""

    version: int
    against: str  # why it cannot be done ahead of the script; "": it can
    path: tuple[str, ...]
    finders: tuple[str, ...]
    files: dict[str, tuple[int, int]]  # that must not change: time and size
    names: tuple[str, ...] = ()  # of all top-level modules that a standby looked for


@dataclass(kw_only=True)
class _StandbyAttempt:
    start: Start
    pid: int
    from_standby: bool
    first: tuple[float, int] | None = None  # when a step was first seen, and which
    considered: bool = False


@dataclass(kw_only=True)
class _WaitingProcess:
    """A standby, and what must still be so when its turn comes."""

    process: WaitingCommand
    injection: Injection
    start: Start
    imports: ImportReport
    started: float = field(default_factory=time.monotonic)
    checked: float = field(default_factory=time.monotonic)
    obeys: bool = False  # it carries out its order

    @property
    def report(self) -> ImportReport | None:
        """Its report, once it has imported everything."""
        return _read(self.injection.pages / f"{self.process.pid}{wire.READY_SUFFIX}")

    def may_reach_script(self, now: float) -> bool:
        """Whether nothing was heard of our part in it for long: it may not be there."""
        self.obeys = self.obeys or (self.injection.site / (ORDER + wire.TAKEN)).exists()
        return not self.obeys and now - self.started > LONGEST_START

    @property
    def size(self) -> int:
        """Bytes that it has for itself."""
        sizes = read_memory((self.process.pid,)).processes.get(self.process.pid, {})
        return sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0)

    def end(self) -> None:
        self.process.end()
        remove(self.injection.pages.parent)


def pays(record: RunRecord, now: float) -> bool:
    """Whether many failures, and the restarts after them, took much of the time of a run."""
    first_steps = {
        bucket.attempt: bucket.first_progress
        for bucket in reversed(record.progress)
        if bucket.first_progress is not None
    }
    restarts = sum(
        first_steps[attempt.number] - attempt.started
        for attempt in record.attempts[1:]
        if attempt.number in first_steps
    )
    lasted = now - record.run.started
    return len(record.failures) >= FAILURES and restarts > RESTART_SHARE * lasted


def is_plain(command: Sequence[str]) -> bool:
    """Whether a command is ``python script.py``, with or without arguments of the script."""
    python = re.compile(r"python[\d.]*")
    return (
        len(command) > 1
        and python.fullmatch(Path(command[0]).name) is not None
        and command[1].endswith(".py")
        and not command[1].startswith("-")
    )


@contextlib.contextmanager
def keeping_standby(run: str, services: Services) -> Iterator[Services]:
    """Yield services that restart from a standby where it pays and the script cannot tell."""
    is_trial = not services.learns  # a trial or a drill is to be as the first attempts of a run
    if services.engine is not start_command or is_trial or sys.platform != "linux":
        yield services
        return
    standby = Standby(run, services)
    try:
        yield replace(services, engine=standby)
    finally:
        standby.close()


class Standby:
    """Starts attempts, and keeps a standby for the next one once that pays."""

    def __init__(self, run: str, services: Services) -> None:
        self._run, self._journal, self._announcer = run, services.journal, services.announcer
        self._attempt: _StandbyAttempt | None = None
        self._waiting: _WaitingProcess | None = None
        self._lock, self._over = threading.Lock(), threading.Event()
        self._looking: threading.Thread | None = None  # since it pays

    def __call__(self, start: Start) -> AttemptProcesses:
        with self._lock:
            child = self._take(start)
            from_standby = child is not None
            if child is None:
                if self._is_wanted(start):
                    with contextlib.suppress(KeyError, OSError):
                        (Path(start.environment[wire.PAGES]).with_name("site") / IMPORTS).touch()
                child = start_command(start)
            self._attempt = _StandbyAttempt(start=start, pid=child.pid, from_standby=from_standby)
            return child

    def close(self) -> None:
        self._over.set()
        with self._lock:
            self._discard()

    def _is_wanted(self, start: Start) -> bool:
        if self._attempt is None or self._over.is_set() or not is_plain(start.command):
            return False
        if self._looking is None:
            with contextlib.suppress(JournalError):
                self._journal.flush(JOURNAL_WITHIN)
                if pays(self._journal.story(self._run), time.time()):
                    self._looking = threading.Thread(target=self._look_on, daemon=True)
                    self._looking.start()
        return self._looking is not None

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            with self._lock:
                if self._over.is_set():  # since we waited for the lock
                    return
                try:
                    self._look()
                except Exception as error:  # noqa: BLE001 - a standby is not worth a run
                    self._give_up(str(error) or type(error).__name__)

    def _look(self) -> None:
        """Start a standby while the attempt trains, and end it if it is not as it must be."""
        attempt, waiting, now = self._attempt, self._waiting, time.monotonic()
        if waiting is not None and waiting.may_reach_script(now):
            self._discard()  # on a busy machine the next one may be quicker
            self._announcer.note("the standby took long to start and was ended.")
        elif waiting is not None and now - waiting.checked >= CHECK_EVERY:
            waiting.checked = now
            if (report := waiting.report) is not None and report.against:
                self._give_up(report.against)
            elif not waiting.process.is_waiting():
                self._discard()
                self._announcer.note("the standby ended, or printed something.")
            elif lacks_memory(waiting.size):
                self._give_up("memory is short")
        elif waiting is None and attempt is not None and not attempt.considered:
            pages = Path(attempt.start.environment.get(wire.PAGES, ""))
            step = max(
                (beat.step for beat in read_pages(pages) if beat.pid == attempt.pid), default=0
            )
            attempt.first = attempt.first or ((now, step) if step else None)
            if attempt.first and step > attempt.first[1] and now - attempt.first[0] > PACE_AFTER:
                attempt.considered = True
                self._prepare(attempt, _read(pages / f"{attempt.pid}{wire.IMPORTS_SUFFIX}"))

    def _prepare(self, attempt: _StandbyAttempt, imports: ImportReport | None) -> None:
        if imports is None:
            self._give_up("how the script imports torch is not known")
        elif imports.against and attempt.from_standby:
            self._announcer.say(
                f"the script {imports.against} before it imports torch, and did not before: this"
                " restart had torch imported already, which has not seen it."
            )
            self._give_up("the script differs from restart to restart")
        elif imports.against:
            self._give_up(f"the script {imports.against} before it imports torch")
        elif lacks_memory(EXPECTED_SIZE):
            self._give_up("memory is short")
        else:
            self._waiting = self._started(attempt.start, imports)

    def _started(self, attempt: Start, imports: ImportReport) -> _WaitingProcess:
        run, _, number = attempt.run_id.rpartition("-")
        run_id = f"{run}-{int(number) + 1}"
        environment = dict(attempt.environment)
        injection = inject(f"{run_id}-standby", environment, self._journal.here.process)
        try:
            environment |= injection.environment(
                {"PYTHONPATH": _theirs(environment)}, run_id=run_id, supervisor=os.getpid()
            )
            os.mkfifo(injection.site / TURN, 0o600)
            (injection.site / ORDER).touch()
            start = replace(attempt, environment=environment, run_id=run_id)
            process = WaitingCommand(start)
        except BaseException:
            remove(injection.pages.parent)
            raise
        return _WaitingProcess(process=process, injection=injection, start=start, imports=imports)

    def _take(self, start: Start) -> AttemptProcesses | None:
        """Turn the standby into the attempt; if anything differs, end it and return None."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return None
        size, turn = waiting.size, -1
        changed = changes(waiting.start.environment, start.environment)
        order = json.dumps({"arguments": start.command[2:], "environment": changed}).encode()
        try:
            against = _against(waiting, start, changed, len(order))
            if not against:
                turn = os.open(waiting.injection.site / TURN, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            against = "it does not wait"
        if against:
            waiting.end()
            self._announcer.note(f"not restarted from the standby: {against}.")
            return None
        try:
            child = waiting.process.watched(start)
        except BaseException:
            os.close(turn)
            waiting.end()
            raise
        with contextlib.suppress(OSError):  # it has ended just now, as an attempt may
            os.write(turn, order)
        os.close(turn)
        remove(waiting.injection.pages.parent)
        self._announcer.note(f"restarted from a standby ({size / MEGABYTE:.0f} MB).")
        return child

    def _discard(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.end()

    def _give_up(self, why: str) -> None:
        """Use none in this run any more."""
        self._discard()
        self._over.set()
        self._announcer.note(f"no standby: {why}.")


def _against(
    waiting: _WaitingProcess, start: Start, changed: Mapping[str, str | None], size: int
) -> str:
    """Return what differs by now from what the standby was started for; "": nothing."""
    ready = waiting.report
    if ready is None or ready.against or not waiting.process.is_waiting():
        return (ready and ready.against) or "it is not ready, has ended or printed something"
    variables = changed.keys() - LATE_VARIABLES - PLACES
    if variables or _theirs(waiting.start.environment) != _theirs(start.environment):
        return f"{min(variables, default='PYTHONPATH')} differs"
    known = (
        "it is of another attempt" if start.run_id != waiting.start.run_id else
        "the command is another" if [*start.command[:2]] != [*waiting.start.command[:2]] else
        "its arguments are too long" if size > PIPE_SIZE else
        "imports are served by others" if ready.finders != waiting.imports.finders else ""
    )  # fmt: skip
    if known:
        return known
    for path, about in {**waiting.imports.files, **ready.files}.items():
        if time_and_size(path) != tuple(about):
            return f"{path} was edited"
    return shadowing(start.folder, waiting.imports.path, ready.path, ready.names)


def shadowing(folder: Path, path: Sequence[str], ahead: Sequence[str], names: Sequence[str]) -> str:
    """Return what the script may import in place of what was imported ahead; "": nothing."""
    if [entry for entry in path if entry in ahead] != [*ahead]:
        return "modules are looked for in another order"
    for entry in (folder / entry for entry in path if entry not in ahead):
        if entry.is_file():
            return f"{entry} may have other modules"
        for found in sorted(entry.iterdir()) if entry.is_dir() else ():
            if found.name.partition(".")[0] in names:
                return f"{found} would be imported instead"
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
    return min(free) < SPARE_FACTOR * size


def _theirs(environment: Mapping[str, str]) -> str:
    """Return the PYTHONPATH of the user."""
    ours = Path(environment.get(wire.PAGES, "")).with_name("site")
    path = environment.get("PYTHONPATH", "")
    return path.removeprefix(str(ours)).removeprefix(os.pathsep)


def _read(path: Path) -> ImportReport | None:
    found = read_json(path, ImportReport, REPORT_BYTES, follow=False)
    return found if found and found.version == wire.IMPORTS_VERSION else None
