"""How a run ended, and its exit code."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from rocsteady.doctor.knowledge.failures import Component, KnownFailure, load_failures
from rocsteady.errors import RocsteadyError
from rocsteady.exit_codes import PERSON_NEEDED, RETRY
from rocsteady.model import Decision, Outcome, RunOutcome
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.attempt.gauges import GPU_BUSY
from rocsteady.run.checkpoints.resume_trial import SavedMethod
from rocsteady.run.context import RunSpec, Services
from rocsteady.run.job.done_when import RunEvidence, missing, proves
from rocsteady.run.job.printed_epochs import epochs_printed
from rocsteady.run.recovery.decision import exit_code, what_failed
from rocsteady.run.recovery.history import History
from rocsteady.run.stopwatch import Stopwatch
from rocsteady.run.telling.deadline_monitor import DeadlineMonitor
from rocsteady.run.telling.events import Done, GaveUp, Stopped
from rocsteady.store.account_records import kept
from rocsteady.store.redaction import shown_command
from rocsteady.store.values import Sample
from rocsteady.wording import met

BUSY_PERCENT = 10  # of a GPU; a desktop that draws stays below it


def is_of_operation(kind: KnownFailure) -> bool:
    """Whether a search for the operation that fails can find the cause."""
    return kind.component in (Component.DEVICE, Component.NUMBERS)


class RunEnd:
    """Knows since when the run goes, and what it must have done."""

    def __init__(
        self,
        spec: RunSpec,
        services: Services,
        deadline_monitor: DeadlineMonitor,
        *,
        typed: bool = False,  # the command; else it is that of the job file
    ) -> None:
        self._job, self._run, self._folder = spec.job, spec.run, spec.folder
        self._announcer, self._stop_requests = services.announcer, services.stop_requests
        self._deadline_monitor = deadline_monitor
        self._since = Stopwatch()
        self._journal = services.journal
        self._report = self._advice("rocsteady report")
        self._resume = self._advice(f"rocsteady run --resume {spec.run.name}")
        # As it follows the options of ``rocsteady run``.
        words = spec.job.command
        shown = "YOUR COMMAND" if any("\n" in word for word in words) else shown_command(words)
        self._command = f" -- {shown}" if typed else ""
        self._gpus: dict[str, bool] = {}  # that answered, and whether they were seen at work

    def look(self, sample: Sample) -> None:
        """Note which GPUs are at work."""
        for name, value in sample.measured.items():
            if name.endswith(GPU_BUSY):
                self._gpus[name] = self._gpus.get(name, False) or value >= BUSY_PERCENT

    def stopped(self, end: AttemptEnd | None = None) -> tuple[int, RunOutcome]:
        """Announce that the user stopped it; the code is the script's own, if it gave one."""
        self._tell_what_is_left()
        self._announcer.show(
            Stopped(
                seconds=self._since.seconds,
                step=end.last_step if end else None,
                code=end.exit.code if end and end.exit else None,
                resume=self._again,
                resumes=self._deadline_monitor.can_resume(),
            )
        )
        code = self._stop_requests.code
        if self._stop_requests.starts_again:
            return RETRY, RunOutcome.STOPPED
        return exit_code(end.outcome, end.exit, code) if end else code, RunOutcome.STOPPED

    def refused(self, why: str) -> RunOutcome:
        """Announce that nothing was started, and why."""
        self._announcer.show(
            GaveUp(
                seconds=0.0,
                why=f"not started: {why}",
                then=self._advice(f"rocsteady run --again{self._command}"),
                report=self._advice("rocsteady doctor"),
            )
        )
        return RunOutcome.NOT_DONE

    def failed(self, why: str) -> None:
        """Announce that the run ended because of something that is not the script."""
        self._announcer.show(GaveUp(seconds=self._since.seconds, why=why, report=self._report))

    def conclude(
        self, end: AttemptEnd, decision: Decision, history: History, keep: tuple[str, ...]
    ) -> tuple[int, RunOutcome]:
        """Announce how the run ended, and what to keep; give its exit code and its outcome."""
        if end.outcome is Outcome.STOPPED and not self._went_on_to_the_end(end):
            return self.stopped(end)
        why = decision.why.rstrip(".")
        at_exit = end.outcome is Outcome.AT_EXIT
        proved = at_exit and proves(self._job.done_when)  # what was killed is done only by proof
        if at_exit and not proved:
            why += "; done_when in rocsteady.toml has no criteria that show the job is done"
        if decision.code != 0 and not proved:
            self._tell_what_is_left()
            if not decision.own_error:
                self._announcer.show(self._gave_up(end, decision, why))
            return decision.code, RunOutcome.NOT_DONE
        if lacking := self._missing(end):
            self._tell_what_is_left()
            self.failed(f"not done: {'; '.join(lacking)}")
            return PERSON_NEEDED, RunOutcome.NOT_DONE
        if at_exit:
            self._announcer.say(f"{why}; the criteria in done_when are met.")
        wanted = self._job.done_when.steps or 0
        if 0 < (end.last_step or 0) < wanted:
            self._announcer.say(
                f"counted {end.last_step:,} of {wanted:,} steps, but the checkpoint's step is only"
                f" known to within {end.unsure:,} and the script exited normally: done."
            )
        due = self._deadline_monitor.due
        hangs_or_crashes = history.incidents or history.crashes
        kept = f"rocsteady run --with {','.join(keep)}{self._command}"
        self._announcer.show(
            Done(
                seconds=self._since.seconds,
                steps=end.last_step or None,
                exact=not end.unsure,
                hangs=history.incidents,
                crashes=history.crashes,
                lost=self._lost() if hangs_or_crashes else 0.0,
                deadline="" if due is None else met(time.time(), due),
                not_finite=end.not_finite,
                afterwards=self._afterwards(history),
                place=self._advice(max(history.hangs, key=history.hangs.__getitem__, default="")),
                keep=self._advice(kept) if keep else "",
                report=self._report,
            )
        )
        return 0, RunOutcome.DONE

    def _gave_up(self, end: AttemptEnd, decision: Decision, why: str) -> GaveUp:
        kind = load_failures().kinds.get(decision.kind)
        meanwhile = f"; {kind.meanwhile}" if kind and kind.meanwhile else ""
        saved = kept(SavedMethod, Path(self._run.folder)) if decision.needs_resume else None
        return GaveUp(
            seconds=self._since.seconds,
            why=why + meanwhile,
            place=self._advice(end.found.cause) if end.found else "",
            change=kind.change if kind else "",
            fix=kind.fix if kind and decision.needs_person else None,
            no_resume=self._job.command if decision.needs_resume else (),
            method=saved.method if saved else None,
            all_cut_off=end.all_cut_off,
            then="" if decision.needs_resume else self._again,
            cause=self._advice(f"rocsteady probe {self._run.name}")
            if kind and is_of_operation(kind)
            else "",
            report=self._report,
        )

    @staticmethod
    def _afterwards(history: History) -> str:
        """Return what failed once the training was done; "" if nothing did."""
        if not history.result.trained:
            return ""
        failure = history.failure
        at = f" at {failure.line}" if failure and failure.line else ""
        return f"{what_failed(history, failure) if failure else 'not known'}{at}"

    def _lost(self) -> float:
        """Return the seconds that failures have cost, as the report has them."""
        with contextlib.suppress(RocsteadyError):
            self._journal.flush()
            return self._journal.story(self._run.name).seconds_lost
        return 0.0

    def _advice(self, text: str) -> str:
        """Return what a person can type or mend; "" for a drill, whose faults are ours."""
        return text if self._announcer.names_run else ""

    def _went_on_to_the_end(self, end: AttemptEnd) -> bool:
        """Return whether a script that was to stop did all of its work nevertheless."""
        ended_well = end.exit is not None and end.exit.code == 0
        return ended_well and proves(self._job.done_when) and not self._missing(end)

    def has_trained(self, end: AttemptEnd) -> bool:
        """Return whether all that the job asks for is there, whatever failed afterwards.

        A file may be a checkpoint: that the training is over must be seen as well.
        """
        if end.total is not None and end.last_step is not None:
            over = end.last_step >= end.total
        else:
            left = any(not beat.ended or beat.raised for beat in end.heartbeats)
            over = bool(self._job.done_when.steps) or (bool(end.heartbeats) and not left)
        unkillable = end.outcome is Outcome.UNKILLABLE
        return over and not unkillable and proves(self._job.done_when) and not self._missing(end)

    def _tell_what_is_left(self) -> None:
        """Announce what a deadline still asks for."""
        with contextlib.suppress(Exception):  # a fault of the forecast costs only the forecast
            if left := self._deadline_monitor.remains():
                self._announcer.say(f"{left}.")

    @property
    def _again(self) -> str:
        """Return what starts it again: from its checkpoint, or from the beginning."""
        if self._deadline_monitor.can_resume():
            return self._resume
        return self._advice(f"rocsteady run --resume never{self._command}")

    def _missing(self, end: AttemptEnd) -> list[str]:
        logs = Path(self._run.folder).glob("attempt-*.log")
        last = max(logs, key=_number, default=None)
        evidence = RunEvidence(
            folder=self._folder,
            started=self._since.earliest(self._run.started),
            seconds=self._since.now - self._run.started,
            steps=end.last_step + end.unsure if end.last_step else end.last_step,
            epochs=epochs_printed(last) if last and self._job.done_when.epochs else None,
            gpus_busy=sum(self._gpus.values()) if self._gpus else None,
            logs=(last,) if last else (),
        )
        return [f"{key}: {what}" for key, what in missing(self._job, evidence)]


def _number(log: Path) -> int:
    digits = log.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0
