"""What a run writes into the journal, and what the machine remembers of it."""

from __future__ import annotations

import time

import msgspec

from rocsteady.model import Decision, Failure, Outcome, Strategy
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.recovery.history import History
from rocsteady.run.stopwatch import Stopwatch
from rocsteady.run.telling.announcer import Announcer
from rocsteady.store.identity import machine_fingerprint
from rocsteady.store.journal import Journal
from rocsteady.store.location import RUNS
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import (
    AttemptRecord,
    DecisionRecord,
    Event,
    Incident,
    NamedFailure,
    PhaseHistory,
    Run,
)

LASTS = 3.0  # seconds that a disk may be busy


class JournalWatch:
    """Says once, and at the end, that a run is not recorded any more."""

    def __init__(self, journal: Journal, announcer: Announcer) -> None:
        self._journal, self._announcer = journal, announcer
        self._since: float | None = None
        self._why = ""

    def look(self) -> None:
        """Report trouble that lasts, and a journal that is lost."""
        while self._journal.lost:
            why = self._journal.lost.pop(0)
            logs = self._journal.place.folder / RUNS
            self._announcer.say(f"{why}: earlier runs are not listed. Their logs are in {logs}.")
        now, why = time.monotonic(), self._journal.trouble
        self._since = (self._since or now) if why else None
        if why and not self._why and now - (self._since or now) >= LASTS:
            self._why = why
            self._announcer.say(
                f"the journal cannot be written ({why}): {self._journal.place.database}. The run"
                " goes on, without a record."
            )

    def at_end(self) -> None:
        """Report again what the run has no record of."""
        self.look()
        why = self._journal.trouble or (self._why if self._journal.losses.dropped else "")
        if why:
            self._announcer.say(
                f"part of this run was not recorded: the journal could not be written ({why})."
            )


class JournalRecords:
    def __init__(
        self,
        run: Run,
        script: str,
        journal: Journal,
        memory: Memory | None,
        history: History,  # so far, also before a supervisor was killed
    ) -> None:
        self.history = history
        self._run = run
        self._script = script
        self._journal = journal
        self._memory = memory
        self._since = Stopwatch()  # the last attempt

    def _record(self, event: Event) -> None:
        self._journal.record(event)
        self.history.add(event)

    def begin(self, number: int, strategy: Strategy) -> AttemptRecord:
        row = AttemptRecord(
            run=self._run.id,
            number=number,
            strategy=strategy,
            boot_id=self._journal.here.boot_id,
            started=time.time(),
        )
        self._record(row)
        self._since = Stopwatch()
        return row

    def not_started(self, row: AttemptRecord) -> None:
        self._record(
            msgspec.structs.replace(
                row, ended=row.started + self._since.seconds, outcome=Outcome.NOT_STARTED
            )
        )

    def end(self, row: AttemptRecord, end: AttemptEnd) -> None:
        """Write down how it ended, what was found, and what was learnt."""
        self._record(
            msgspec.structs.replace(
                row,
                ended=row.started + self._since.seconds,
                exit_code=end.exit.code if end.exit else None,
                signal=end.exit.signal if end.exit else None,
                outcome=end.outcome,
                first_step=end.first_step,
                last_step=end.last_step,
                result=end.result,
            )
        )
        if end.found is not None:
            verdict = end.found.verdict
            self._record(
                Incident(
                    run=self._run.id,
                    attempt=row.number,
                    number=self.history.incidents + 1,
                    verdict=verdict.condition,
                    why=verdict.why,
                    place=verdict.place,
                    quiet=verdict.quiet,
                    evidence=end.found.evidence.folder,
                    at=time.time(),
                    blame=end.found.blame,
                )
            )
        if self._memory is not None and end.learned.phases:
            self._memory.learn(self._script, machine_fingerprint(), end.learned)

    def failed(self, number: int, failure: Failure, evidence: str) -> None:
        self._record(
            NamedFailure(
                run=self._run.id,
                attempt=number,
                failure=failure,
                evidence=evidence,
                at=time.time(),
            )
        )

    def decided(self, number: int, decision: Decision) -> None:
        self._record(
            DecisionRecord(run=self._run.id, attempt=number, decision=decision, at=time.time())
        )

    def learned(self) -> PhaseHistory | None:
        """Return what earlier runs of this script on this machine showed."""
        return self._memory.learned(self._script, machine_fingerprint()) if self._memory else None
