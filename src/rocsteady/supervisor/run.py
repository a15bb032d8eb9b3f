"""A run: attempts at one job, until it is done, or a person is needed."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from rocsteady.checkpoint_folder import is_ours, step_of
from rocsteady.errors import CommandError, JournalError, RocsteadyError
from rocsteady.evidence.pages import Resumes
from rocsteady.failures.symptoms import Symptoms
from rocsteady.host.child import OURS, Child, TerminalUse
from rocsteady.journal.identity import is_alive, script_fingerprint
from rocsteady.journal.journal import Journal
from rocsteady.journal.memory import Memory
from rocsteady.journal.values import Run, RunStory
from rocsteady.pulse.known import KnownWaits
from rocsteady.report.when import spelled
from rocsteady.supervisor.aftermath import Aftermath
from rocsteady.supervisor.announce import Announcer
from rocsteady.supervisor.aside import copy_aside, wrote_model
from rocsteady.supervisor.attempt import Attempt
from rocsteady.supervisor.autopsy import symptoms
from rocsteady.supervisor.beginning import START, Beginning
from rocsteady.supervisor.by_itself import keep, kept, resume_of, where
from rocsteady.supervisor.course import Course, in_words
from rocsteady.supervisor.decision import PERSON_NEEDED, Decision, Next
from rocsteady.supervisor.failing import between_failures
from rocsteady.supervisor.finish import Finish
from rocsteady.supervisor.gpu_free import wait_until_free
from rocsteady.supervisor.injection import Injection, claim, lay_out, runtime_folder, sweep
from rocsteady.supervisor.job import Job, Total
from rocsteady.supervisor.logout import logging_out_ends_us
from rocsteady.supervisor.marks import Marks
from rocsteady.supervisor.outcome import AttemptEnd, Outcome, is_failure
from rocsteady.supervisor.outlook import Outlook
from rocsteady.supervisor.records import Records
from rocsteady.supervisor.resume import (
    Checkpoint,
    Launch,
    launch,
    newest_checkpoint,
)
from rocsteady.supervisor.setting import Means, Setting
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.stop_deadline import StopDeadline
from rocsteady.supervisor.ways import WAY
from rocsteady.supervisor.wishes import Wishes

UNCHANGED = ("", "retry")  # the same again


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
        earlier: RunStory | None = None,  # of a run that was left
        course: Course,
    ) -> None:
        if job.resume is None and earlier is not None:
            job = msgspec.structs.replace(job, resume=kept(Path(run.folder)))
        self._job = job
        self._total = job.total or Total()
        self._run = run
        self._folder = folder
        self._settings = settings
        self._journal = journal
        self._memory = memory
        self._terminal = terminal
        self._environment = dict(environment)
        self._earlier = earlier
        self._told = {name: value for name, value in environment.items() if name in known_variables}
        self._announcer = Announcer(journal, run.id)
        self._wishes = Wishes()
        self._deadline = StopDeadline(run, journal, self._announcer, settings.stopping)
        self._wishes.reacted = self._deadline.reacted
        self._marks = Marks(earlier.progress if earlier else ())
        self._means = Means(
            settings=settings,
            journal=journal,
            announcer=self._announcer,
            wishes=self._wishes,
            waits=waits,
            marks=self._marks,
            resumes=self._resumes,
        )
        script = script_fingerprint(job.command, str(folder))
        incidents = len(earlier.incidents) if earlier else 0
        self._records = Records(run, script, journal, memory, incidents=incidents)
        self.outcome = ""  # of the whole run, once it has ended
        self._quick_crashes = 0
        self._course = course
        self._symptoms: Symptoms | None = None  # of the last attempt, if it failed
        self._went_on_from: Checkpoint | None = None
        self._counts = False  # the script has told its steps from the job's beginning
        self._outlook = Outlook(
            run,
            job.deadline,
            self._announcer,
            ways=lambda: course.ways.left,
            resumes=lambda: self.can_resume,
            between=lambda: self._between_failures,
            earlier=earlier,
        )
        self._aftermath = Aftermath(
            job,
            run,
            folder=folder,
            settings=settings,
            announcer=self._announcer,
            records=self._records,
            course=course,
            outlook=self._outlook,
            told=self._told,
        )

    @property
    def folder(self) -> Path:
        """Where the log and the evidence of this run lie."""
        return Path(self._run.folder)

    @property
    def can_resume(self) -> bool:
        """Tell whether there is a known way to go on from a checkpoint."""
        return self._job.resume is not None

    @cached_property
    def _between_failures(self) -> float | None:
        """Seconds, as earlier runs showed; None where they cannot be read."""
        try:
            return between_failures(self._journal.runs(), but=self._run.id)
        except JournalError:
            return None

    @property
    def _folders(self) -> Sequence[Path]:
        """The folders in which the script sees itself."""
        return (self._folder,)

    def carry_out(self) -> int:
        """Make attempts until there is nothing more to do; return the exit code."""
        self._wishes.listen()
        self._deadline.start()
        finish = Finish(
            self._job, self._run, self._announcer, self._wishes, self._folder, self._outlook
        )
        outcome, code = "the supervisor failed", PERSON_NEEDED
        try:
            sweep(self._environment, is_alive)
            first = _first_attempt(self._earlier)
            beginning = Beginning(
                self._journal, self._memory, self._announcer, self._course, self._folder
            )
            beginning.tell_what_is_unfinished()
            refused = beginning.set_out(self._earlier)
            self._introduce(first)
            self._keep_what_was_done(first)
            if refused:
                code, outcome = PERSON_NEEDED, finish.refused(refused)
            else:
                code, outcome = self._attempts(first, finish)
        except CommandError as error:
            outcome, code = "not started", error.code
            self._announcer.say(f"{error}.")
            finish.say_next("check that the command works without rocsteady")
        except JournalError as error:
            outcome = "the journal could not be written"
            self._announcer.say(f"{error}. Cannot start: the journal is not writable.")
            finish.say_next(f"free some disk space, or check {self._journal.place.folder}")
        except RocsteadyError as error:
            outcome = "ended, not done"
            self._announcer.say(f"{error}.")
            finish.say_next()
        finally:
            finish.close()
            self.outcome = outcome
            self._journal.end_run(self._run.id, outcome)
            self._announcer.close()
            self._deadline.stop()
            self._wishes.stop_listening()
        return code

    def _attempts(self, first: int, finish: Finish) -> tuple[int, str]:
        number = first
        while self._wishes.stop is None:
            end = self._attempt(number)
            decision = self._aftermath.decide(
                end,
                self._symptoms,
                number=number,
                attempts=number - first + 1,
                went_on_from=self._went_on_from,
            )
            self._records.decided(number, decision)
            if decision.next is Next.END:
                return finish.conclude(end, decision, self._records.incidents, number - first + 1)
            self._prepare(end, decision, number)
            number += 1
        self._deadline.reacted()
        return finish.stopped()

    def _introduce(self, first: int) -> None:
        say = self._announcer.say
        if self._earlier is not None:
            say(f"taken over: {self._run.name}, which runs {shlex.join(self._job.command)}")
        resumes = "" if self._job.resume else " It has no known way to resume."
        observing = " Only observing." if self._settings.observe else ""
        say(
            f"run {self._run.name}, attempt {first}, {in_words(self._course.strategy)}. Log and"
            f" evidence: {_near(self.folder)}.{resumes}{observing}"
        )
        if self._terminal == OURS and logging_out_ends_us():
            say("logging out ends this run: logind kills what a session leaves. Use --detach.")

    def _keep_what_was_done(self, first: int) -> None:
        """See to it that taking over a run that cannot resume does not write over its work."""
        if self._earlier is None or self._job.resume is not None:
            return
        saved = any(bucket.seconds_in.get("checkpoint") for bucket in self._earlier.progress)
        if not saved and not wrote_model(self._folder, self._run.started):
            return
        if not self._settings.from_scratch:
            raise RocsteadyError(
                "it has written checkpoints and has no known way to resume; starting again would"
                " write over them. Name one in rocsteady.toml, or give --from-scratch"
            )
        self._copy_aside(first - 1)

    def _attempt(self, number: int) -> AttemptEnd:
        launched, (before, most) = self._launch(number)
        run_id = f"{self._run.name}-{os.getpid()}-{number}"
        injection = self._inject(run_id)
        try:
            setting = Setting(
                run=self._run.id,
                number=number,
                run_id=run_id,
                folder=self._folder,
                records=self.folder,
                incident=self._records.incidents + 1,
                injection=injection,
                environment=self._environment,
                told=self._told,
                learned=self._records.learned(),
                total=self._total.count,
                pattern=self._total.log,
                log_rules=self._job.log_rules,
                before=before,
                between_failures=self._between_failures,
                strategy=self._course.strategy,
            )
            self._outlook.begin(number)
            attempt = Attempt(setting, self._means, self._outlook)
            end = self._carried_out(attempt, launched, number)
            self._symptoms = symptoms(setting, end) if is_failure(end) else None
        finally:
            if injection is not None:
                shutil.rmtree(injection.pages.parent, ignore_errors=True)
        by_pages = not self._total.log
        self._counts = self._counts or (by_pages and any(beat.total for beat in end.heartbeats))
        if by_pages and before and end.heartbeats and not any(beat.base for beat in end.heartbeats):
            end = msgspec.structs.replace(end, unsure=max(1, most - before))
        if is_failure(end) and self._job.resume is None and not end.wrote_checkpoint:
            since = time.time() - end.seconds
            return msgspec.structs.replace(end, wrote_checkpoint=wrote_model(self._folder, since))
        return end

    def _carried_out(self, attempt: Attempt, launched: Launch, number: int) -> AttemptEnd:
        what = " ".join(launched.command)[:200]
        row = self._records.begin(number, self._course.strategy)  # on disk before the intent is
        try:
            intent = self._journal.intend(START, what, run=self._run.id, attempt=number)
        except JournalError:
            self._records.not_started(row)
            raise
        try:
            child = self._started(attempt, launched)
        except RocsteadyError as error:
            intent.end(f"not started: {error}")
            self._records.not_started(row)
            raise
        with self._deadline.over(child):
            end = attempt.watch(child)
        intent.end(end.outcome.value)
        self._records.end(row, end)
        for note in dict.fromkeys(attempt.notes().values()):
            self._announcer.say(note)
        return end

    def _started(self, attempt: Attempt, launched: Launch) -> Child:
        try:
            return attempt.start(launched, self._terminal)
        except OSError as error:
            text = f"{error.filename or launched.command[0]}: {error.strerror}"
            if error.filename != launched.command[0]:  # our log, say: nothing wrong with it
                raise RocsteadyError(text) from None
            raise CommandError(text, exists=not isinstance(error, FileNotFoundError)) from None

    def _launch(self, number: int) -> tuple[Launch, tuple[int, int]]:
        """Return what to start, and how many steps are done before: about, and at most."""
        checkpoint = newest_checkpoint(self._job, self._folder, avoid=self._aftermath.avoid)
        self._went_on_from = checkpoint
        if checkpoint is None:
            return launch(self._job), (0, 0)
        for broken in checkpoint.passed_over:
            self._announcer.say(f"skipped: {broken}.")
        before, about = self._marks.step_at(checkpoint.written), "about "
        if self._counts and is_ours(self._folder / checkpoint.path):
            exact = step_of(checkpoint.path) or 0
            before, about = (exact, exact), ""
        step = f", {about}step {before[0]:,}" if before[0] else ""
        self._announcer.say(f"attempt {number}, from {checkpoint.path}{step}.")
        return launch(self._job, checkpoint.path), before

    def _resumes(self, told: tuple[Resumes, ...]) -> None:
        """Take up that a script goes on by itself. A way that the job names comes first."""
        if self._job.resume is not None:
            return
        resume = resume_of(told, self._folders)
        self._job = self._aftermath.job = msgspec.structs.replace(self._job, resume=resume)
        keep(resume, self.folder)
        self._announcer.say(
            f"the script saves and resumes on its own: checkpoints in {where(resume)}."
        )

    def _inject(self, run_id: str) -> Injection | None:
        folder: Path | None = None
        try:
            folder = runtime_folder(run_id, self._environment)
            claim(folder, self._journal.here.process)
            return lay_out(folder)
        except (OSError, RocsteadyError) as error:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            self._announcer.say(f"cannot observe steps: {error}")
            return None

    def _prepare(self, end: AttemptEnd, decision: Decision, number: int) -> None:
        """Get ready for the next attempt."""
        same = decision.remedy in UNCHANGED or decision.remedy.startswith(WAY)
        named = "" if same else f" Remedy {decision.remedy}."
        self._announcer.say(f"attempt {number + 1}: {decision.why.rstrip('.')}.{named}")
        if decision.next is Next.AGAIN_FROM_SCRATCH:
            self._copy_aside(number)
        left = wait_until_free(end.processes, self._settings.kfd_within)
        if left:
            self._announcer.say(f"{len(left)} old processes still use the GPU.")
        quick = end.seconds < self._settings.quick_crash.total_seconds()
        crashed = quick and end.outcome is Outcome.BY_ITSELF
        self._quick_crashes = self._quick_crashes + 1 if crashed else 0
        if self._quick_crashes > 1:
            doubled = self._settings.back_off * 2 ** min(self._quick_crashes - 2, 10)
            wait = min(doubled, self._settings.back_off_at_most).total_seconds()
            self._announcer.say(f"the script crashed quickly again; waiting {spelled(wait)}.")
            self._sleep(wait)

    def _copy_aside(self, number: int) -> None:
        aside = copy_aside(self._folder, self._run.started, self.folder / f"aside-{number}")
        place = _near(Path(aside.folder))
        self._announcer.say(f"{aside.files} files written by the run were copied to {place}.")

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._wishes.stop is None and time.monotonic() < deadline:
            time.sleep(0.1)


def _first_attempt(earlier: RunStory | None) -> int:
    """Return the next number; an attempt may be known only by the intent to make it."""
    if earlier is None:
        return 1
    made = [attempt.number for attempt in earlier.attempts]
    return 1 + max([*made, *(deed.attempt or 0 for deed in earlier.deeds)], default=0)


def _near(path: Path) -> str:
    """Write a path as short as it can be typed from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)
