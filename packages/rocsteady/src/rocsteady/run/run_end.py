"""How a run ended: what is said of it, and its exit code."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

from rocsteady_train.untrusted_file import open_regular, read_tail

from rocsteady.colours import GREEN, RED
from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.exit_codes import PERSON_NEEDED, RETRY
from rocsteady.model import FailureKind, Outcome, RunOutcome
from rocsteady.run.attempt_end import AttemptEnd
from rocsteady.run.context import RunSpec, Services
from rocsteady.run.deadline_monitor import DeadlineMonitor
from rocsteady.run.gauges import BusyGpus
from rocsteady.run.job.done_when import RunEvidence, done, proves
from rocsteady.run.recovery import Decision, exit_code
from rocsteady.run.stopwatch import Stopwatch
from rocsteady.system.child_end import Exit
from rocsteady.wording import duration, met, plural


class RunEnd:
    """Knows since when the run goes, and what it must have done."""

    def __init__(
        self, spec: RunSpec, services: Services, deadline_monitor: DeadlineMonitor
    ) -> None:
        self._job, self._run, self._folder = spec.job, spec.run, spec.folder
        self._announcer, self._stop_requests = services.announcer, services.stop_requests
        self._deadline_monitor = deadline_monitor
        self._since = Stopwatch()
        self._report = f"rocsteady report {spec.run.name}"
        self._gpus = BusyGpus() if spec.job.done_when.gpus_busy is not None else None

    def close(self) -> None:
        """Watch nothing any more."""
        if self._gpus is not None:
            self._gpus.close()

    def stopped(self, end: AttemptEnd | None = None) -> tuple[int, RunOutcome]:
        """Announce that the user stopped it; the code is the script's own, if it gave one."""
        self._tell_what_is_left()
        own = "" if end is None or end.exit is None else _own_code(end.exit)
        self._announcer.say(f"stopped after {self._took()}{own}.")
        self.say_next(self._resume())
        code = self._stop_requests.code
        return exit_code(end, code) if end else code, RunOutcome.STOPPED

    def refused(self, why: str) -> RunOutcome:
        """Announce that nothing was started, and why."""
        self._announcer.say(f"not started: {why}.", style=RED)
        self.say_next("rocsteady doctor, or use --again to start anyway")
        return RunOutcome.NOT_DONE

    def conclude(
        self, end: AttemptEnd, decision: Decision, incidents: int, attempts: int
    ) -> tuple[int, RunOutcome]:
        """Announce how the run ended, and give its exit code and its outcome."""
        if end.outcome is Outcome.STOPPED and not self._went_on_to_the_end(end):
            return self.stopped(end)
        hangs = f", {plural(incidents, 'hang')}" if incidents else ""
        tried = f"{plural(attempts, 'attempt')}{hangs}"
        took = self._took()
        why = decision.why.rstrip(".")
        at_exit = end.outcome is Outcome.AT_EXIT
        proved = at_exit and proves(self._job.done_when)  # what was killed is done only by proof
        if at_exit and not proved:
            why += "; done_when in rocsteady.toml has no criteria that show the job is done"
        if decision.code != 0 and not proved:
            self._tell_what_is_left()
            self._announcer.say(
                f"ended with exit code {decision.code} after {took}, {tried}: {why}.", style=RED
            )
            self.say_next(self._after(decision, end))
            return decision.code, RunOutcome.NOT_DONE
        missing = self._missing(end)
        for item in missing:
            self._announcer.say(f"not done: {item}", style=RED)
        if missing:
            self._tell_what_is_left()
            self.say_next()
            return PERSON_NEEDED, RunOutcome.NOT_DONE
        if at_exit:
            self._announcer.say(f"{why}; the criteria in done_when are met.")
        wanted = self._job.done_when.steps or 0
        if 0 < (end.last_step or 0) < wanted:
            self._announcer.say(
                f"counted {end.last_step:,} of {wanted:,} steps, but the checkpoint's step is only"
                f" known to within {end.unsure:,} and the script exited normally: done."
            )
        about = "about " if end.unsure else ""
        steps = f"{about}{end.last_step:,} steps in {took}" if end.last_step else f"took {took}"
        due = self._deadline_monitor.due
        in_time = "" if due is None else f", {met(time.time(), due)}"
        report = f" Report: {self._report}" if self._announcer.names_run else ""
        more = f", {tried}.{report}" if incidents or attempts > 1 else "."
        self._announcer.say(f"done. {steps[:1].upper()}{steps[1:]}{in_time}{more}", style=GREEN)
        return 0, RunOutcome.DONE

    def _went_on_to_the_end(self, end: AttemptEnd) -> bool:
        """Return whether a script that was to stop did all of its work nevertheless."""
        ended_well = end.exit is not None and end.exit.code == 0
        return ended_well and proves(self._job.done_when) and not self._missing(end)

    def say_next(self, what: str = "") -> None:
        """End a failure with the one thing to do next; as a rule, to read the report."""
        if self._announcer.names_run:
            self._announcer.say(f"next: {what or self._report}")

    def _after(self, decision: Decision, end: AttemptEnd) -> str:
        if decision.kind == FailureKind.SCRIPT_ERROR:
            return f"fix the error in the script, then: {self._resume()}"
        goes_on = decision.code == RETRY or decision.kind in (
            FailureKind.INTERRUPTED,
            FailureKind.SCRIPT_EXIT,
        )
        kind = load_failures().kinds.get(decision.kind)
        if kind is not None and kind.change and end.found and end.found.verdict.place:
            return f"at {end.found.verdict.place}, {kind.change}, then: {self._resume()}"
        if kind is not None and kind.meanwhile:
            return f"{kind.meanwhile}, then: {self._resume()}"
        return self._resume() if goes_on else ""

    def _resume(self) -> str:
        again = f"rocsteady run --resume {self._run.name}"
        if self._deadline_monitor.can_resume():
            return again
        return f"{again} (from the beginning)"

    def _tell_what_is_left(self) -> None:
        """Announce what a deadline still asks for."""
        with contextlib.suppress(Exception):  # a fault of the forecast costs only the forecast
            if left := self._deadline_monitor.remains():
                self._announcer.say(f"{left}.")

    def _took(self) -> str:
        return duration(self._since.seconds)

    def _missing(self, end: AttemptEnd) -> list[str]:
        logs = Path(self._run.folder).glob("attempt-*.log")
        last = max(logs, key=_number, default=None)
        evidence = RunEvidence(
            folder=self._folder,
            started=self._since.earliest(self._run.started),
            seconds=self._since.now - self._run.started,
            exit_code=0,
            steps=end.last_step + end.unsure if end.last_step else end.last_step,
            epochs=epochs_printed(last) if last and self._job.done_when.epochs else None,
            gpus_busy=self._gpus.count if self._gpus else None,
            logs=(last,) if last else (),
        )
        return [f"{item.key}: {item.what}" for item in done(self._job, evidence)]


def _number(log: Path) -> int:
    digits = log.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _own_code(ended: Exit) -> str:
    return "" if ended.code is None else f"; the script exited with code {ended.code}"


LOG_CHUNK = 1024 * 1024  # bytes
TAIL = 4 * 1024 * 1024  # bytes
OVERLAP = 64  # bytes; longer than what is looked for
# In the singular: "epochs = 3" is what was asked for, not what was done.
_EPOCH = re.compile(rb"(?i)\bepoch['\"]?[ \t]*[:=#\[(]?[ \t]*([0-9]{1,6})(\.[0-9]+)?(?![0-9])")


def last_epoch_printed(log: Path) -> int | None:
    """Return the highest epoch in the last of a log; None if that speaks of none."""
    try:
        tail = read_tail(log, TAIL, follow=False)
    except OSError:
        return None
    return max((int(whole) for whole, _ in _EPOCH.findall(tail)), default=None)


def epochs_printed(log: Path) -> int | None:
    """Return the highest epoch in a log, counted from 1; None if it speaks of none.

    A script that begins with epoch 0 has made one more than it says. One that counts in fractions,
    as "epoch: 2.37", has made as many as are whole.
    """
    highest, from_zero, fractions = -1, False, False
    try:
        with open_regular(log, follow=False) as stream:
            window = b""
            while chunk := stream.read(LOG_CHUNK):
                window += chunk
                for whole, fraction in _EPOCH.findall(window):
                    highest = max(highest, int(whole))
                    fractions = fractions or bool(fraction)
                    from_zero = from_zero or int(whole) == 0
                window = window[-OVERLAP:]
    except OSError:
        return None
    if highest < 0:
        return None
    return highest + 1 if from_zero and not fractions else highest
