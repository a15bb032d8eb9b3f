"""A run: attempts at one job, until it is done, or a person is needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import msgspec
from rocsteady_train.inside.wire import FAULTS

from rocsteady.errors import CommandError, JournalError, LauncherError, RocsteadyError
from rocsteady.exit_codes import PERSON_NEEDED, RETRY
from rocsteady.failures.symptoms import Symptoms
from rocsteady.hangs.heartbeat_pages import Resumes
from rocsteady.model import IntentKind, Next, RunOutcome
from rocsteady.run.announcer import Announcer
from rocsteady.run.attempt import Attempt
from rocsteady.run.attempt_context import AttemptContext, AttemptTools
from rocsteady.run.attempt_end import AttemptEnd, is_failure
from rocsteady.run.attempt_review import AttemptReview
from rocsteady.run.backup import wrote_model
from rocsteady.run.checkpoints import Checkpoints, Steps
from rocsteady.run.engines.processes import AttemptProcesses
from rocsteady.run.finish_forecast import Outlook
from rocsteady.run.forecast import between_failures
from rocsteady.run.host_decision import HostAgreement
from rocsteady.run.injection import Injection, inject, remove, sweep
from rocsteady.run.job.resume import Checkpoint, Launch, launch
from rocsteady.run.job.values import Total
from rocsteady.run.journal_records import Records
from rocsteady.run.logout import LOGOUT_WARNING, logging_out_ends_us
from rocsteady.run.notifications import RunNotices
from rocsteady.run.observer import ObservedRun, Observer, ticking
from rocsteady.run.restart_preparation import Restart, near
from rocsteady.run.run_end import RunEnd
from rocsteady.run.run_spec import Equipment, RunSpec
from rocsteady.run.script_resume import keep, kept, resume_of, where
from rocsteady.run.startup import Startup, first_attempt
from rocsteady.run.step_times import StepTimes
from rocsteady.run.stop_deadline import StopDeadline
from rocsteady.run.stop_requests import StopRequests
from rocsteady.run.stopwatch import Since
from rocsteady.run.strategy_history import StrategyHistory, in_words
from rocsteady.run.symptom_collection import symptoms
from rocsteady.store.identity import is_alive, script_fingerprint
from rocsteady.store.redaction.redactor import shown_command
from rocsteady.store.values import INJECTED
from rocsteady.system.child_end import OURS


class Supervisor:
    """Carries out one run. A drill, a trial and a probe differ by their observers only."""

    def __init__(
        self,
        spec: RunSpec,
        equipment: Equipment,
        course: StrategyHistory,
        observers: Sequence[Observer] = (),
    ) -> None:
        job, run, earlier, folder = spec.job, spec.run, spec.earlier, spec.folder
        settings, journal = equipment.settings, equipment.journal
        if job.resume is None and earlier is not None:
            job = msgspec.structs.replace(job, resume=kept(Path(run.folder)))
        self._job = job
        self._total = job.total or Total()
        self._run = run
        self._folder = folder
        self._folders = (folder, *spec.seen_as)
        self._settings = settings
        self._journal = journal
        self._memory = memory = equipment.memory
        self._terminal = equipment.terminal
        self._environment = environment = dict(equipment.environment)
        self._earlier = earlier
        self._note = spec.note
        self._checkpoints = Checkpoints(job, folder, Path(run.folder), spec.origin, run.started)
        known = equipment.known_variables
        self._told = {name: value for name, value in environment.items() if name in known}
        self._announcer = Announcer(journal, run.id)
        self._announcer.quiet, self._announcer.names_run = equipment.quiet, spec.is_listed
        self._notices = RunNotices(run, self._announcer, equipment.notices)
        self._wishes = StopRequests()
        self._deadline = StopDeadline(run, journal, self._announcer, settings.stopping)
        self._wishes.reacted = self._deadline.reacted
        self._marks = StepTimes(earlier.progress if earlier else ())
        self._observers = tuple(observers)
        self.observed = ObservedRun(run, self._marks, self._announcer, self._wishes)
        self._means = AttemptTools(
            settings=settings,
            journal=journal,
            announcer=self._announcer,
            wishes=self._wishes,
            waits=equipment.waits,
            marks=self._marks,
            engine=equipment.engine,
            hosts=equipment.hosts,
            resumes=self._resumes,
        )
        script = script_fingerprint(job.command, str(folder))
        incidents = len(earlier.incidents) if earlier else 0
        self._records = Records(run, script, journal, memory, incidents=incidents)
        self.outcome = RunOutcome.NONE  # of the whole run, once it has ended
        self._course = course
        self._restart = self._new_restart()
        self._symptoms: Symptoms | None = None  # of the last attempt, if it failed
        self._went_on_from: Checkpoint | None = None
        self._outlook = self._new_outlook()
        self._aftermath = self._new_aftermath()
        self._agreement = HostAgreement(equipment.hosts, course, self._announcer)
        self._checkpoints.others_write = equipment.hosts is not None

    def _new_restart(self) -> Restart:
        return Restart(
            self._run,
            folder=self._folder,
            settings=self._settings,
            announcer=self._announcer,
            wishes=self._wishes,
            gpu_trouble=self._course.gpu_trouble,
        )

    def _new_outlook(self) -> Outlook:
        return Outlook(
            self._run,
            self._job.deadline,
            self._announcer,
            options=lambda: self._course.fallbacks,
            resumes=lambda: self.can_resume,
            between=lambda: self._between_failures,
            earlier=self._earlier,
            slipped=self._notices.will_be_late,
        )

    def _new_aftermath(self) -> AttemptReview:
        return AttemptReview(
            self._run,
            checkpoints=self._checkpoints,
            settings=self._settings,
            announcer=self._announcer,
            records=self._records,
            course=self._course,
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
        return self._checkpoints.can_resume

    @cached_property
    def _between_failures(self) -> float | None:
        """Seconds, as earlier runs showed; None where they cannot be read."""
        try:
            return between_failures(self._journal.runs(), but=self._run.id)
        except JournalError:
            return None

    def carry_out(self) -> int:
        """Make attempts until there is nothing more to do; return the exit code."""
        with ticking(self._observers, self.observed):
            return self._carry_out()

    def _carry_out(self) -> int:
        self._wishes.listen()
        self._deadline.start()
        finish = RunEnd(
            self._job, self._run, self._announcer, self._wishes, self._folder, self._outlook
        )
        outcome, code = RunOutcome.SUPERVISOR_FAILED, PERSON_NEEDED
        try:
            sweep(self._environment, is_alive)
            first = first_attempt(self._earlier)
            beginning = Startup(
                self._journal, self._memory, self._announcer, self._course, self._folder
            )
            beginning.tell_what_is_unfinished()
            refused = beginning.set_out(self._earlier)
            if not refused:
                self._introduce(first)
            self._find_checkpoints()
            resumes = self._job.resume is not None or bool(self._checkpoints.argument)
            if self._earlier is not None and not resumes:
                self._restart.take_over(self._earlier, first - 1)
            if refused:
                code, outcome = PERSON_NEEDED, finish.refused(refused)
            else:
                code, outcome = self._attempts(first, finish)
        except CommandError as error:
            outcome, code = RunOutcome.NOT_STARTED, error.code
            self._announcer.say(f"{error}.")
            finish.say_next("check that the command works without rocsteady")
        except LauncherError as error:
            outcome, code = RunOutcome.NOT_DONE, RETRY
            self._announcer.say(f"{error}.")
        except JournalError as error:
            outcome = RunOutcome.NOT_RECORDED
            self._announcer.say(f"{error}. Cannot start: the journal is not writable.")
            finish.say_next(f"free some disk space, or check {self._journal.place.folder}")
        except RocsteadyError as error:
            outcome = RunOutcome.NOT_DONE
            self._announcer.say(f"{error}.")
            finish.say_next()
        finally:
            finish.close()
            self.outcome = outcome
            self._journal.end_run(self._run.id, outcome)
            self._notices.ended(outcome)
            self._announcer.close()
            self._deadline.stop()
            self._wishes.stop_listening()
        return code

    def _attempts(self, first: int, finish: RunEnd) -> tuple[int, RunOutcome]:
        number = first
        self._agreement.start()
        while self._wishes.stop is None:
            end = self._attempt(number)
            own = self._aftermath.decide(
                end,
                self._symptoms,
                number=number,
                attempts=number - first + 1,
                went_on_from=self._went_on_from,
            )
            decision = self._agreement.settle(own, end, self._aftermath.failure)
            self._records.decided(number, decision)
            blame = end.found.blame if end.found else None
            ranks = blame.why if blame and blame.ranks else ""
            self._notices.failed(self._aftermath.failure, decision, ranks)
            if decision.next is Next.END:
                return finish.conclude(end, decision, self._records.incidents, number - first + 1)
            beginning = self._checkpoints.beginning
            self._restart.prepare(end, decision, number, beginning=beginning)
            number += 1
        self._deadline.reacted()
        return finish.stopped()

    def _introduce(self, first: int) -> None:
        say = self._announcer.say
        if self._earlier is not None:
            say(f"resuming run {self._run.name}: {shown_command(self._job.command)}")
        resumes = "" if self._job.resume else " rocsteady does not know how this script resumes."
        if resumes and self._checkpoints.argument:
            resumes = f" The script resumes on its own ({self._checkpoints.argument})."
        observing = " Only observing." if self._settings.observe else ""
        say(
            f"run {self._run.name} started (attempt {first}, {in_words(self._course.strategy)})."
            f" Logs: {near(self.folder)}.{resumes}{observing}"
        )
        if FAULTS in self._environment:
            say(f"{INJECTED}: {FAULTS} is set.")
        if self._terminal == OURS and logging_out_ends_us():
            say(LOGOUT_WARNING)

    def _find_checkpoints(self) -> None:
        """Tell the checkpoints of this run from others, and say so."""
        if self._note:
            self._announcer.say(self._note)
        if self._earlier is None:
            self._checkpoints.begin()
        else:
            others = [line.run for line in self._journal.runs()]
            scratch = self._settings.from_scratch
            self._checkpoints.take_over(self._run, others, from_scratch=scratch)

    def _attempt(self, number: int) -> AttemptEnd:
        since, (launched, before) = Since(), self._launch(number)
        launched = self._observe_launch(number, launched, before)
        run_id = f"{self._run.name}-{os.getpid()}-{number}"
        injection = self._inject(run_id)
        self.observed.pages = injection.pages if injection else None
        try:
            setting = AttemptContext(
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
                before=before.least,
                resumed=bool(before.key),
                save_after=self._aftermath.starts.save_after,
                between_failures=self._between_failures,
                strategy=self._course.strategy,
            )
            self._outlook.begin(number)
            attempt = Attempt(setting, self._means, self._outlook.seen)
            end = self._carried_out(attempt, launched, number)
            for observer in self._observers:
                observer.ended(self.observed, end)
            self._symptoms = symptoms(setting, end) if is_failure(end) else None
        finally:
            if injection is not None:
                remove(injection.pages.parent)
        end = msgspec.structs.replace(end, start=before.key)
        if end.own_step is None and before.key and end.heartbeats:
            end = msgspec.structs.replace(end, unsure=max(1, before.most - before.least))
        if is_failure(end):
            end = self._checkpoints.counted(end, before, setting.log)
        if is_failure(end) and self._job.resume is None and not end.wrote_checkpoint:
            wrote = wrote_model(self._folder, since.earliest(since.wall))
            return msgspec.structs.replace(end, wrote_checkpoint=wrote)
        return end

    def _observe_launch(self, number: int, launched: Launch, before: Steps) -> Launch:
        self.observed.pages = None
        self.observed.attempt, self.observed.steps_before = number, before.least
        for observer in self._observers:
            launched = observer.launching(self.observed, launched)
        return launched

    def _carried_out(self, attempt: Attempt, launched: Launch, number: int) -> AttemptEnd:
        what = " ".join(launched.command)[:200]
        row = self._records.begin(number, self._course.strategy)  # on disk before the intent is
        try:
            intent = self._journal.intend(IntentKind.START, what, run=self._run.id, attempt=number)
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
            for observer in self._observers:
                observer.started(self.observed)
            end = attempt.watch(child)
        intent.end(end.outcome.value)
        self._records.end(row, end)
        for note in dict.fromkeys(attempt.notes().values()):
            self._announcer.say(note)
        return end

    def _started(self, attempt: Attempt, launched: Launch) -> AttemptProcesses:
        try:
            return attempt.start(launched, self._terminal)
        except OSError as error:
            text = f"{error.filename or launched.command[0]}: {error.strerror}"
            if error.filename != launched.command[0]:  # our log, say: nothing wrong with it
                raise RocsteadyError(text) from None
            raise CommandError(text, exists=not isinstance(error, FileNotFoundError)) from None

    def _launch(self, number: int) -> tuple[Launch, Steps]:
        """Return what to start, and the steps that are done before."""
        checkpoint = self._checkpoints.newest()
        self._checkpoints.started()
        self._went_on_from = checkpoint
        if checkpoint is None:
            return launch(self._job), Steps()
        for broken in checkpoint.passed_over:
            self._announcer.say(f"skipped: {broken}.")
        before = self._checkpoints.step_of(checkpoint, self._marks.step_at(checkpoint.written))
        step = f", {before.words}" if before.words else ""
        self._announcer.say(f"attempt {number} resumes from {checkpoint.path}{step}.")
        return launch(self._job, checkpoint.path), before

    def _resumes(self, told: tuple[Resumes, ...]) -> None:
        """Take up that a script goes on by itself. A way that the job names comes first."""
        if self._job.resume is not None:
            return
        resume = resume_of(told, self._folders)
        self._job = msgspec.structs.replace(self._job, resume=resume)
        self._checkpoints.told(self._job)
        keep(resume, self.folder)
        self._announcer.say(
            f"the script saves and resumes on its own: checkpoints in {where(resume)}."
        )

    def _inject(self, run_id: str) -> Injection | None:
        try:
            return inject(run_id, self._environment, self._journal.here.process)
        except (OSError, RocsteadyError) as error:
            self._announcer.say(f"cannot observe steps: {error}")
            return None
