"""After an attempt: name why it ended, keep the evidence, and announce what comes of it."""

from __future__ import annotations

import time
from itertools import islice
from statistics import median

import msgspec

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.errors import RocsteadyError
from rocsteady.failures.classify import Classifier
from rocsteady.failures.difference import NAMES
from rocsteady.failures.memory_arguments import memory_arguments
from rocsteady.hangs.heartbeat_pages import SettingOutcome
from rocsteady.hangs.looking.collect import collect
from rocsteady.model import Decision, Failure, FailureKind
from rocsteady.run.attempt.attempt_end import AttemptEnd, is_failure
from rocsteady.run.attempt.symptoms import collect_symptoms
from rocsteady.run.checkpoints.checkpoints import Checkpoints
from rocsteady.run.checkpoints.script_facts import defaults_of, read_facts, script_in
from rocsteady.run.context import AttemptContext, RunSpec, Services
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.backoff import (
    LONGEST_WAIT,
    SCHEDULERS,
    Drives,
    in_detail,
    limit_of,
    renamed,
)
from rocsteady.run.recovery.decision import THE_SCRIPTS_OWN, Here, what_failed
from rocsteady.run.recovery.history import History
from rocsteady.run.recovery.machine import RunMachine
from rocsteady.run.telling.deadline_monitor import DeadlineMonitor
from rocsteady.run.telling.events import Crashed, Waiting
from rocsteady.store.location import check_own
from rocsteady.wording import duration, moment, plural

COSTS_ANNOUNCED = (3, 10, 30, 100, 300, 1000, 3000, 10000)  # failures in a row with progress
OUT_OF_MEMORY = "oom-"  # what the kinds of running out of memory begin with


class AttemptReview:
    """Looks back on each attempt of one run. What it knows of the run is in the history."""

    def __init__(  # noqa: PLR0913 - what it looks at
        self,
        spec: RunSpec,
        options: RunOptions,
        services: Services,
        *,
        checkpoints: Checkpoints,
        machine: RunMachine,
        deadline_monitor: DeadlineMonitor,
    ) -> None:
        self._spec, self._options, self._services = spec, options, services
        self._announcer, self._checkpoints = services.announcer, checkpoints
        self._machine, self._deadline_monitor = machine, deadline_monitor
        self.in_allocation = any(name in services.environment for name in SCHEDULERS)
        self.drives = Drives(spec.folder, lambda: checkpoints.gone)

    @property
    def here(self) -> Here:
        gone = self._checkpoints.gone
        return Here(
            machine=self._machine,
            now=time.time(),
            can_resume=self._checkpoints.can_resume,
            unseen=self._checkpoints.unseen,
            cleared=self._checkpoints.cleared,
            checkpoints=len(tuple(islice(self._checkpoints.whole(), 2))),
            gone=str(gone) if gone else "",
            in_allocation=self.in_allocation,
            due=self._deadline_monitor.due,
            needs=self._deadline_monitor.needs(),
        )

    def name(
        self, context: AttemptContext, end: AttemptEnd, history: History
    ) -> tuple[Failure, str] | None:
        """Name why an attempt failed, and keep its evidence.

        None if it did not fail, or if a fault of ours prevents it, which costs only the remedy.
        """
        for applied in end.applied:
            if applied.outcome is SettingOutcome.NO_EFFECT:  # refused ones were announced at once
                name = NAMES.get(applied.setting, applied.setting)
                self._announcer.say(f"{name} had no effect in this script.")
        if not is_failure(end):
            return None
        try:
            symptoms = collect_symptoms(context, end)
            named = Classifier(load_failures()).name(symptoms)
            return self.judged(named, end, history), self._keep(context.number, end)
        except Exception as error:  # noqa: BLE001 - the run goes on
            self._announcer.bug("retrying without changes", error)
            return None

    def judged(self, failure: Failure, end: AttemptEnd, history: History) -> Failure:
        """Add to what the process showed what only the run knows."""
        if failure.kind == FailureKind.SCRIPT_ERROR and self._checkpoints.cleared:
            return renamed(failure, FailureKind.CHECKPOINT_CORRUPT)
        newest = self._checkpoints.newest()
        given = self._checkpoints.folder / newest.path if newest else None
        failure = self.drives.judged(failure, history, end.result, given)
        blamed = end.found.blame.ranks if end.found and end.found.blame else ()
        if len(blamed) == 1:  # it may be on another host, whose stack is read there
            failure = msgspec.structs.replace(failure, rank=blamed[0].rank)
        return failure

    def announce(self, decision: Decision, history: History) -> None:
        last, failure = history.last, history.failure
        if last is None or not last.failed:
            return
        if failure is not None:
            self._announce_failure(failure, decision, history)
        for remedy, why in decision.skipped:
            self._announcer.note(f"not tried: {remedy}: {why}.")
        self._announce_starts(history)
        if not decision.ends:
            self._announce_cost(history)

    def announce_wait(self, decision: Decision, history: History) -> None:
        """Announce what is waited for, once."""
        if not decision.waits or not decision.wait or decision.announced:
            return
        limit = limit_of(history, self._options, in_allocation=self.in_allocation)
        failure = history.failure
        kind = load_failures().kinds.get(failure.kind) if failure else None
        self._announcer.show(
            Waiting(
                trouble=in_detail(failure) if failure else "",
                advice=kind.meanwhile if kind else "",
                next_try=decision.wait if decision.wait <= LONGEST_WAIT.total_seconds() else None,
                limit=limit.total_seconds(),
            )
        )

    def _announce_failure(self, failure: Failure, decision: Decision, history: History) -> None:
        """Announce a failure once, unless a hang was, or what is waited for says it."""
        crash = history.crash
        if crash is None:
            self._announcer.note(f"{failure.title} ({failure.kind}).")  # it was said: hung
            return
        own = crash.kind in THE_SCRIPTS_OWN
        event = Crashed(
            what=what_failed(history, crash),
            failure=crash.kind,
            place=crash.line or (crash.fingerprint.place if own else ""),
            step=history.last.last_step if history.last else None,
            rank=crash.rank,
            own=bool(decision.own_error),
            lower=self._what_to_lower(crash.kind, history),
        )
        routine = history.is_routine or (history.repeats and history.clears)
        routine = routine or history.result.trained  # the end of the run says it
        waits = decision.waits and decision.wait > 0
        gave_up = decision.ends and bool(decision.kind) and not decision.exhausted
        if routine:
            self._announcer.keep(event)
        elif decision.own_error or not (waits or gave_up):
            self._announcer.show(event)

    def _announce_starts(self, history: History) -> None:
        """Announce earlier saves, to what uses rocsteady_train.Loop."""
        on_request = history.result.batch_split is not None
        if history.saves_earlier and on_request and not history.starts.are_enough:
            self._announcer.say(
                "failed twice before a checkpoint; asking the script to save after"
                f" {history.save_after} steps."
            )

    def _announce_cost(self, history: History) -> None:
        """After 3, 10, 30, ... failures in a row, say what they cost."""
        failures = history.rhythm
        if len(failures) not in COSTS_ANNOUNCED:
            return
        steps = round(median(made for made, _ in failures))
        seconds = median(restart for _, restart in failures)
        ahead = self._deadline_monitor.forecast(time.time())
        ends = f"; done about {moment(ahead.at, now=time.time())}" if ahead else ""
        self._announcer.say(
            f"fails about every {plural(steps, 'step')}; each restart costs"
            f" {duration(seconds)}{ends}."
        )

    def _keep(self, number: int, end: AttemptEnd) -> str:
        """Return the folder of the evidence; of a crash, keep what there is; "": it cannot be."""
        if end.found:
            return end.found.evidence.folder
        records = self._spec.records
        try:
            check_own(records)
            return collect(
                records / f"evidence-{number}",
                pids=(),
                pages=None,
                log=records / f"attempt-{number}.log",
                since=end.began,
                variables=self._services.known_variables,
                within=self._options.timing.evidence_within,
            ).folder
        except (OSError, RocsteadyError):
            return ""

    def _what_to_lower(self, kind: str, history: History) -> tuple[tuple[str, int], ...]:
        """Return the arguments by which the script would need less memory, once a run."""
        before = {each.failure.kind for each in history.tried[:-1]}
        if not kind.startswith(OUT_OF_MEMORY) or kind in before:
            return ()
        command, folder = self._checkpoints.job.command, self._checkpoints.folder
        options = read_facts(script_in(command, folder)).options
        return tuple(memory_arguments((*command, *defaults_of(options, command)), kind))
