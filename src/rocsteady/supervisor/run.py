"""A run: attempts at one job, until it is done, or a person is needed."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from rocsteady.errors import JournalError, RocsteadyError
from rocsteady.host.child import OURS, TerminalUse
from rocsteady.journal.identity import script_fingerprint
from rocsteady.journal.journal import Journal
from rocsteady.journal.memory import Memory
from rocsteady.journal.values import Fate, Run
from rocsteady.pulse.known import KnownWaits
from rocsteady.supervisor.announce import Announcer, spelled
from rocsteady.supervisor.aside import copy_aside
from rocsteady.supervisor.attempt import Attempt, AttemptEnd, Means, Outcome, Setting
from rocsteady.supervisor.decision import INTERRUPTED, PERSON_NEEDED, Decision, Next, decide
from rocsteady.supervisor.done import RunEvidence, done
from rocsteady.supervisor.gpu_free import wait_until_free
from rocsteady.supervisor.injection import Injection, lay_out, runtime_folder
from rocsteady.supervisor.job import Job
from rocsteady.supervisor.records import Records
from rocsteady.supervisor.resume import Launch, launch, newest_checkpoint
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.wishes import Wishes

TERMINATED = 128 + signal.SIGTERM
STOPPED = "stopped by the user"


class Supervisor:
    """Carries out one run."""

    def __init__(  # noqa: PLR0913 - each is said by name
        self,
        job: Job,
        run: Run,
        *,
        folder: Path,
        settings: Settings,
        journal: Journal,
        memory: Memory | None,
        waits: KnownWaits,
        known_variables: frozenset[str],
        terminal: TerminalUse = OURS,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._job = job
        self._run = run
        self._folder = folder
        self._settings = settings
        self._journal = journal
        self._memory = memory
        self._terminal = terminal
        self._environment = dict(environment)
        self._told = {name: value for name, value in environment.items() if name in known_variables}
        self._announcer = Announcer(journal, run.id)
        self._wishes = Wishes()
        self._means = Means(
            settings=settings,
            journal=journal,
            announcer=self._announcer,
            wishes=self._wishes,
            waits=waits,
        )
        script = script_fingerprint(job.command, str(folder))
        self._records = Records(run, script, journal, memory)
        self._started = time.time()
        self._quick_crashes = 0
        self._runtime: list[Path] = []  # folders in memory, to be removed

    @property
    def folder(self) -> Path:
        """Where the log and the evidence of this run lie."""
        return Path(self._run.folder)

    def carry_out(self, first: int = 1) -> int:
        """Make attempts until there is nothing more to do; return the exit code."""
        self._wishes.listen()
        outcome = "the supervisor failed"
        try:
            self._introduce(first)
            code, outcome = self._attempts(first)
        except JournalError as error:
            outcome, code = "the journal could not be written", PERSON_NEEDED
            self._announcer.say(f"{error} Nothing is started that is not written down first.")
        finally:
            self._journal.end_run(self._run.id, outcome)
            self._wishes.stop_listening()
            for runtime in self._runtime:
                shutil.rmtree(runtime, ignore_errors=True)
        return code

    def _attempts(self, first: int) -> tuple[int, str]:
        number = first
        while True:
            end = self._attempt(number)
            decision = decide(
                end,
                number=number - first + 1,
                can_resume=self._job.resume is not None,
                settings=self._settings,
            )
            self._records.decided(number, decision)
            if decision.next is Next.END:
                return self._conclude(end, decision, number - first + 1)
            self._prepare(end, decision, number)
            if self._wishes.stop is not None:
                return INTERRUPTED, STOPPED
            number += 1

    def _introduce(self, first: int) -> None:
        for note in self._journal.place.notes:
            self._announcer.say(note)
        for left in self._journal.unfinished():
            if left.fate not in (Fate.MACHINE_WENT_DOWN, Fate.KILLED):
                continue
            deed = left.deed
            self._announcer.say(
                f"unfinished from before: {deed.kind} {deed.what}: {left.fate.value}."
            )
            if left.fate is Fate.MACHINE_WENT_DOWN and self._memory is not None:
                self._memory.took_down(left)
            self._journal.settle(deed, left.fate.value)
        resumes = "" if self._job.resume else " It has no known way to resume."
        observing = " Only observing." if self._settings.observe else ""
        self._announcer.say(
            f"run {self._run.name}, attempt {first}, as the script says. Log and evidence:"
            f" {_near(self.folder)}.{resumes}{observing}"
        )

    def _attempt(self, number: int) -> AttemptEnd:
        launched = self._launch(number)
        run_id = f"{self._run.name}-{os.getpid()}-{number}"
        setting = Setting(
            run=self._run.id,
            number=number,
            run_id=run_id,
            folder=self._folder,
            records=self.folder,
            incident=self._records.incidents + 1,
            injection=self._inject(run_id),
            environment=self._environment,
            told=self._told,
            learned=self._records.learned(),
        )
        attempt = Attempt(setting, self._means)
        what = " ".join(launched.command)[:200]
        intent = self._journal.intend("start", what, run=self._run.id, attempt=number)
        row = self._records.begin(number)
        try:
            end = attempt.carry_out(launched, self._terminal)
        except OSError as error:
            intent.end(f"not started: {error.strerror}")
            self._records.not_started(row)
            raise RocsteadyError(f"{launched.command[0]}: {error.strerror}") from None
        intent.end(end.outcome.value)
        self._records.end(row, end)
        for note in dict.fromkeys(attempt.notes().values()):
            self._announcer.say(note)
        return end

    def _launch(self, number: int) -> Launch:
        checkpoint = newest_checkpoint(self._job, self._folder)
        if checkpoint is None:
            return launch(self._job)
        for broken in checkpoint.passed_over:
            self._announcer.say(f"passed over: {broken}.")
        self._announcer.say(f"attempt {number}, from {checkpoint.path}.")
        return launch(self._job, checkpoint.path)

    def _inject(self, run_id: str) -> Injection | None:
        try:
            folder = runtime_folder(run_id, self._environment)
        except RocsteadyError as error:
            self._announcer.say(f"steps cannot be seen: {error}")
            return None
        self._runtime.append(folder)
        return lay_out(folder)

    def _prepare(self, end: AttemptEnd, decision: Decision, number: int) -> None:
        """Get ready for the next attempt."""
        self._announcer.say(f"attempt {number + 1}: the same again; {decision.why}.")
        if decision.next is Next.AGAIN_FROM_SCRATCH:
            aside = copy_aside(self._folder, self._started, self.folder / f"aside-{number}")
            place = _near(Path(aside.folder))
            self._announcer.say(f"{aside.files} files that it wrote were copied to {place}.")
        left = wait_until_free(end.processes, self._settings.kfd_within)
        if left:
            self._announcer.say(f"{len(left)} old processes still hold the GPU.")
        quick = end.seconds < self._settings.quick_crash.total_seconds()
        crashed = quick and end.outcome is Outcome.BY_ITSELF
        self._quick_crashes = self._quick_crashes + 1 if crashed else 0
        if self._quick_crashes > 1:
            doubled = self._settings.back_off * 2 ** min(self._quick_crashes - 2, 10)
            wait = min(doubled, self._settings.back_off_at_most).total_seconds()
            self._announcer.say(f"it crashed quickly again; waiting {spelled(wait)}.")
            self._sleep(wait)

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._wishes.stop is None and time.monotonic() < deadline:
            time.sleep(0.1)

    def _conclude(self, end: AttemptEnd, decision: Decision, attempts: int) -> tuple[int, str]:
        """Say how the run ended, and give its exit code."""
        took = spelled(time.time() - self._started)
        if end.outcome is Outcome.STOPPED:
            self._announcer.say(f"stopped after {took}.")
            by_signal = self._wishes.stop is signal.SIGTERM
            return (TERMINATED if by_signal else INTERRUPTED), STOPPED
        incidents = self._records.incidents
        tried = f"{_count(attempts, 'attempt')}, {_count(incidents, 'incident')}"
        report = f"rocsteady report {self._run.name}"
        if decision.code != 0:
            self._announcer.say(f"ended after {took}, {tried}: {decision.why}. The story: {report}")
            return decision.code, "ended, not done"
        missing = self._missing(end)
        for item in missing:
            self._announcer.say(f"not done: {item}")
        if missing:
            return PERSON_NEEDED, "ended, not done"
        steps = f"{end.last_step:,} steps in {took}" if end.last_step else f"it took {took}"
        more = f", {tried}. The story: {report}" if incidents or attempts > 1 else "."
        self._announcer.say(f"done. {steps[:1].upper()}{steps[1:]}{more}")
        return 0, "done"

    def _missing(self, end: AttemptEnd) -> list[str]:
        evidence = RunEvidence(
            folder=self._folder,
            started=self._started,
            ended=time.time(),
            exit_code=0,
            steps=end.last_step,
            logs=tuple(sorted(self.folder.glob("attempt-*.log"))[-1:]),
        )
        return [f"{item.key}: {item.what}" for item in done(self._job, evidence)]


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _near(path: Path) -> str:
    """Write a path as short as it can be typed from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
