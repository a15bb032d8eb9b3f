"""One attempt: start it, watch it, collect the evidence, end it if it is hung; say how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rocsteady.evidence.collect import Collected, collect
from rocsteady.evidence.look import look
from rocsteady.evidence.output import OutputCounter
from rocsteady.evidence.pages import read_notes, read_pages
from rocsteady.evidence.values import Heartbeat, Look, Tick
from rocsteady.host.child import Child, Exit, TerminalUse
from rocsteady.journal.journal import Journal
from rocsteady.journal.values import Sample
from rocsteady.pulse.known import KnownWaits
from rocsteady.pulse.learning import Learned
from rocsteady.pulse.pulse import Pulse, begin, judge, learn
from rocsteady.pulse.verdict import Condition, Verdict
from rocsteady.supervisor.announce import Announcer, spelled
from rocsteady.supervisor.engines import plain
from rocsteady.supervisor.exits import Leaving
from rocsteady.supervisor.injection import Injection
from rocsteady.supervisor.resume import Launch
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.telling import Teller
from rocsteady.supervisor.wishes import Wishes
from rocsteady.vocabulary import Value

MOST_LOOKS = 40  # kept; older ones say nothing more


class Outcome(Enum):
    """How an attempt ended."""

    BY_ITSELF = "by itself"
    HUNG = "hung"
    AT_EXIT = "hung at exit, after its work"
    STOPPED = "stopped by the user"
    UNKILLABLE = "cannot be killed"


class Found(Value, frozen=True, kw_only=True):
    """What was found when it was hung."""

    verdict: Verdict
    evidence: Collected


class AttemptEnd(Value, frozen=True, kw_only=True):
    """What came of an attempt."""

    outcome: Outcome
    exit: Exit | None
    seconds: float
    progress_seconds: float  # from its first step to its last
    first_step: int | None
    last_step: int | None
    wrote_checkpoint: bool
    found: Found | None  # when it was hung
    learned: Learned
    processes: tuple[int, ...]  # that it had when it was last looked at


class Setting(Value, frozen=True, kw_only=True):
    """Where and as what an attempt takes place."""

    run: int  # its key in the journal
    number: int
    run_id: str  # of this attempt, by which its processes are found
    folder: Path  # the user's
    records: Path  # ours: log and incidents
    incident: int  # the number that the next incident gets
    injection: Injection | None  # None: the page could not be made
    environment: Mapping[str, str]  # the user's
    told: Mapping[str, str]  # the variables of it that evidence may hold
    learned: Learned | None

    @property
    def log(self) -> Path:
        """The kept log."""
        return self.records / f"attempt-{self.number}.log"


@dataclass(frozen=True, kw_only=True)
class Means:
    """What an attempt works with."""

    settings: Settings
    journal: Journal
    announcer: Announcer
    wishes: Wishes
    waits: KnownWaits


class Attempt:
    """Watches one launch from its start to its end."""

    def __init__(self, setting: Setting, means: Means) -> None:
        self._setting = setting
        self._means = means
        self._settings = means.settings
        self._teller = Teller(means.announcer)
        self._began = time.monotonic()
        self._pulse: Pulse = begin(self._began, _boot_clock(), setting.learned)
        self._counter = OutputCounter()
        self._looks: tuple[Look, ...] = ()
        self._heartbeats: tuple[Heartbeat, ...] = ()
        self._leaving = Leaving()
        self._first_step: tuple[int, float] | None = None
        self._continued = False
        self._stopped_since: float | None = None

    def carry_out(self, launch: Launch, terminal: TerminalUse) -> AttemptEnd:
        """Start the command and stay with it. Raises OSError if it cannot be started."""
        child = plain.start(
            launch,
            environment=self._environment(),
            folder=self._setting.folder,
            run_id=self._setting.run_id,
            log=self._setting.log,
            on_output=lambda chunk: self._counter.feed(chunk, time.monotonic()),
            terminal=terminal,
        )
        self._means.announcer.through = child.tell
        try:
            return self._watch(child)
        finally:
            self._means.announcer.through = None
            child.close()

    def notes(self) -> dict[int, str]:
        """Return why processes have no page, as they said it."""
        injection = self._setting.injection
        return read_notes(injection.pages) if injection else {}

    def _environment(self) -> dict[str, str]:
        injection, existing = self._setting.injection, dict(self._setting.environment)
        if injection is None:
            return existing
        added = injection.environment(existing, run_id=self._setting.run_id, supervisor=os.getpid())
        return {**existing, **added}

    def _watch(self, child: Child) -> AttemptEnd:
        """Tick until the command ends, the user wants it to, or it is hung."""
        wishes = self._means.wishes
        while True:
            exited = child.wait(self._settings.tick.total_seconds())
            if exited is not None:
                self._tick(child, alive=False)
                by_user = wishes.stop is not None or child.interrupts > 0
                return self._end(child, Outcome.STOPPED if by_user else Outcome.BY_ITSELF, exited)
            if wishes.terminal_lost:
                wishes.terminal_lost = False
                child.detach_terminal()
            if child.interrupts > 1 or wishes.at_once:
                return self._stopped(child, None)
            if wishes.pass_on is not None:
                number, wishes.pass_on = wishes.pass_on, None
                child.signal_foreground(number)
            if wishes.stop is not None and not wishes.patient:
                return self._stopped(child, signal.SIGTERM)
            ended = self._act(child, self._tick(child, alive=True))
            if ended is not None:
                return ended

    def _tick(self, child: Child, *, alive: bool) -> Verdict:
        now = time.monotonic()
        if self._setting.injection is not None:
            self._heartbeats = read_pages(self._setting.injection.pages)
        tick = Tick(
            at=now,
            boot=_boot_clock(),
            heartbeats=self._heartbeats,
            output=self._counter.output,
            alive=alive,
        )
        before = self._pulse.progress
        self._pulse, verdict = judge(
            self._pulse, tick, self._looks, self._settings.patience, self._means.waits
        )
        if self._pulse.progress != before:
            self._looks = ()
        self._note_progress(now, verdict)
        if alive and verdict.examine:
            self._examine(child, verdict)
        if alive:
            self._teller.tell(verdict, looked=bool(self._looks))
        return verdict

    def _examine(self, child: Child, verdict: Verdict) -> None:
        taken = look(child.tree(), stacks=True, within=self._settings.look_within)
        self._looks = (*self._looks, taken)[-MOST_LOOKS:]
        if verdict.condition is Condition.FINISHING:
            self._leaving = self._leaving.seen(taken)

    def _note_progress(self, now: float, verdict: Verdict) -> None:
        step, counted = self._step(), self._counter.progress
        if step and self._first_step is None:
            self._first_step = (step, now)
        total = next((beat.total for beat in self._heartbeats if beat.total), None)
        sample = Sample(
            at=time.time(),
            step=step if step is not None else (counted.n if counted else 0),
            verdict=verdict.condition.value,
            quiet=verdict.quiet,
            total=total or (counted.total if counted else None),
            seconds_in=self._heartbeats[0].seconds_in if self._heartbeats else {},
        )
        self._means.journal.progressed(self._setting.run, self._setting.number, sample)

    def _act(self, child: Child, verdict: Verdict) -> AttemptEnd | None:
        now, settings = time.monotonic(), self._settings
        if verdict.condition is Condition.STOPPED:
            self._continue_once(child, now)
        else:
            self._stopped_since = None
        if verdict.condition is Condition.HUNG:
            return self._hung(child, verdict)
        leaves = verdict.condition is Condition.FINISHING and not settings.observe
        if leaves and self._leaving.too_long(now, settings.exit_after, settings.exit_busy_after):
            return self._at_exit(child)
        return None

    def _continue_once(self, child: Child, now: float) -> None:
        """Continue a run that somebody stopped and forgot; a second stop is meant."""
        if self._stopped_since is None:
            self._stopped_since = now
        waited = now - self._stopped_since
        due = waited >= self._settings.continue_after.total_seconds()
        if self._continued or self._settings.observe or not due or not self._is_stopped():
            return
        self._continued = True
        self._means.announcer.say(
            f"stopped for {spelled(waited)}; continued once. A second stop is left alone."
        )
        for pid in child.tree():
            _continue(pid)

    def _is_stopped(self) -> bool:
        """Tell a stop by a signal from a debugger's."""
        processes = self._looks[-1].processes if self._looks else ()
        return any(thread.state == "T" for process in processes for thread in process.threads)

    def _hung(self, child: Child, verdict: Verdict) -> AttemptEnd | None:
        if self._settings.observe:
            self._teller.hung(verdict, "Only observing: nothing is done.")
            return None
        setting = self._setting
        self._teller.hung(verdict, f"Incident {setting.incident}.")
        pids = child.tree()
        found = Found(verdict=verdict, evidence=self._collect(pids))
        with self._means.journal.intend(
            "kill", f"attempt {setting.number}", run=setting.run, attempt=setting.number
        ):
            ended = child.stop(self._settings.stopping, first=signal.SIGINT)
        if ended.unkillable:
            self._means.announcer.say(
                f"{len(ended.unkillable)} processes cannot be killed: they are stuck in the kernel."
                " The machine may need a restart."
            )
        outcome = Outcome.UNKILLABLE if ended.unkillable else Outcome.HUNG
        return self._end(child, outcome, ended.exit, found, pids)

    def _collect(self, pids: tuple[int, ...]) -> Collected:
        injection = self._setting.injection
        return collect(
            self._setting.records / f"incident-{self._setting.incident}",
            pids=pids,
            pages=injection.pages if injection else None,
            log=self._setting.log,
            since=self._began,
            attempt=f"attempt {self._setting.number}",
            variables=self._setting.told,
            within=self._settings.evidence_within,
        )

    def _at_exit(self, child: Child) -> AttemptEnd:
        self._means.announcer.say(
            "the script's work is done and it does not exit. Ended; the work counts."
        )
        child.stop(self._settings.stopping, first=signal.SIGTERM)
        return self._end(child, Outcome.AT_EXIT, Exit(code=0))

    def _stopped(self, child: Child, first: signal.Signals | None) -> AttemptEnd:
        ended = child.stop(self._settings.stopping, first=first)
        return self._end(child, Outcome.STOPPED, ended.exit)

    def _end(
        self,
        child: Child,
        outcome: Outcome,
        exited: Exit | None,
        found: Found | None = None,
        pids: tuple[int, ...] = (),
    ) -> AttemptEnd:
        last = [beat.last_step for beat in self._heartbeats if beat.last_step is not None]
        progressed = max(last) - self._first_step[1] if last and self._first_step else 0.0
        return AttemptEnd(
            outcome=outcome,
            exit=exited,
            seconds=time.monotonic() - self._began,
            progress_seconds=max(0.0, progressed),
            first_step=self._first_step[0] if self._first_step else None,
            last_step=self._step(),
            wrote_checkpoint=any(beat.seconds_in.get("checkpoint") for beat in self._heartbeats),
            found=found,
            learned=learn(self._pulse),
            processes=pids or (child.pid,),
        )

    def _step(self) -> int | None:
        return max((beat.step for beat in self._heartbeats), default=None)


def _boot_clock() -> float:
    """Read the clock that goes on while the machine sleeps; Windows' monotonic one does."""
    if sys.platform == "win32":
        return time.monotonic()
    else:  # noqa: RET505 - mypy must see that this is for the other systems
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def _continue(pid: int) -> None:
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # gone, or not ours
            os.kill(pid, signal.SIGCONT)
