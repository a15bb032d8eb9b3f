"""A run: attempts at one job, until it is done, or nothing is left to try.

To understand rocsteady, read ``Supervisor._make_attempts``: start an attempt, watch it, name how it
ended, decide, repeat. All else here prepares that, or cleans up after it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import cached_property
from itertools import count

import msgspec
from rocsteady_train.inside.wire import FAULTS

from rocsteady.errors import (
    CommandError,
    JournalError,
    LauncherError,
    NotNeededError,
    RocsteadyError,
)
from rocsteady.exit_codes import PERSON_NEEDED, RETRY
from rocsteady.failures.difference import describe_changes
from rocsteady.hangs.heartbeat_pages import Resumes
from rocsteady.model import Failure, FailureKind, IntentKind, Next, Outcome, RunOutcome, Strategy
from rocsteady.run.attempt.attempt import Attempt
from rocsteady.run.attempt.attempt_end import AttemptEnd, is_failure
from rocsteady.run.attempt.injection import Injection, inject, remove, sweep
from rocsteady.run.attempt.progress import PRINTED, StepTimes
from rocsteady.run.attempt.watchers import Watchers
from rocsteady.run.checkpoints.backup import wrote_model
from rocsteady.run.checkpoints.checkpoints import Checkpoints, StartsAt, Steps
from rocsteady.run.checkpoints.resume import Checkpoint, Launch, launch
from rocsteady.run.checkpoints.resume_detection import How
from rocsteady.run.checkpoints.resume_trial import OutputCopies, ResumeTrial, put_back
from rocsteady.run.checkpoints.script_resume import (
    checkpoint_folders,
    resume_of,
)
from rocsteady.run.context import AttemptContext, RunSpec, Services
from rocsteady.run.engines.processes import AttemptProcesses
from rocsteady.run.engines.standby import keeping_standby
from rocsteady.run.hosts.host_decision import HostAgreement
from rocsteady.run.job.values import Resume
from rocsteady.run.observer import ObservedRun, Observer, ticking
from rocsteady.run.options import AUTO, RunOptions
from rocsteady.run.recovery.attempt_review import AttemptReview
from rocsteady.run.recovery.option_stop import OptionStop
from rocsteady.run.recovery.recovery import Decision
from rocsteady.run.recovery.restart_preparation import Restart
from rocsteady.run.recovery.strategy_history import strategies_of
from rocsteady.run.run_end import RunEnd, RunFailures
from rocsteady.run.startup import LOGOUT_WARNING, Startup, first_attempt, logging_out_ends_us
from rocsteady.run.stop_deadline import StopDeadline
from rocsteady.run.stopwatch import Stopwatch
from rocsteady.run.telling.deadline_monitor import DeadlineMonitor
from rocsteady.run.telling.events import Faults, Resumed, Started
from rocsteady.run.telling.journal_records import JournalRecords, JournalWatch
from rocsteady.run.telling.notifications import RunNotices
from rocsteady.store.account_records import keep, kept
from rocsteady.store.forecast import between_failures
from rocsteady.store.identity import is_alive, script_fingerprint
from rocsteady.store.values import Run, Sample
from rocsteady.system.child_end import OURS
from rocsteady.wording import near


@dataclass(frozen=True, kw_only=True)
class AttemptStart:
    """What an attempt starts with."""

    number: int
    launch: Launch
    checkpoint: Checkpoint | None  # that it goes on from
    before: Steps  # that it does not have to make


class Supervisor:
    """Carries out one run. A drill and a trial differ by their observers only."""

    def __init__(
        self,
        spec: RunSpec,
        options: RunOptions,
        services: Services,
        observers: Sequence[Observer] = (),
    ) -> None:
        if spec.job.resume is None and spec.earlier is not None:
            job = msgspec.structs.replace(spec.job, resume=kept(Resume, spec.records))
            spec = with_fields(spec, job=job)
        hang_after = options.hang_after or spec.job.hang_after
        options = msgspec.structs.replace(options, hang_after=hang_after)
        job, run, earlier = spec.job, spec.run, spec.earlier
        self._spec, self._options, self._services = spec, options, services
        self._journal, self._announcer = services.journal, services.announcer
        self._stop_requests = services.stop_requests
        self._observers = tuple(observers)
        self.outcome: RunOutcome | None = None  # of the whole run, once it has ended
        self._strategies = strategies_of(options, services, job.command, spec.folder)
        self._checkpoints = Checkpoints(
            job, spec.folder, spec.records, spec.origin, run.started, seen_as=spec.seen_as
        )
        self._checkpoints.others_write = services.hosts is not None
        self._step_times = StepTimes(earlier.progress if earlier else ())
        self.observed = ObservedRun(run, self._step_times, services)
        self._records = JournalRecords(
            run,
            script_fingerprint(job.command, str(spec.folder)),
            services.journal,
            services.writable_memory,
            incidents=len(earlier.incidents) if earlier else 0,
        )
        self._journal_watch = JournalWatch(services.journal, services.announcer)
        self._notices = RunNotices(run, services.announcer, services.notifier)
        self._stop_deadline = StopDeadline(run, services, options.timing.stopping)
        self._stop_requests.reacted = self._stop_deadline.reacted
        self._deadline_monitor = DeadlineMonitor(
            run,
            job.deadline,
            services.announcer,
            options=lambda: self._strategies.fallbacks,
            resumes=lambda: self.can_resume,
            between=lambda: self._between_failures,
            earlier=earlier,
            slipped=self._notices.will_be_late,
        )
        self._option_stop = OptionStop(options, earlier)
        self._watchers = Watchers[Sample](
            services.announcer,
            {
                "warnings about the journal": lambda _: self._journal_watch.look(),
                "a forecast": self._deadline_monitor.seen,
                "the plan's stop rules": self._option_stop.seen,
            },
        )
        self._review = AttemptReview(
            spec,
            options,
            services,
            checkpoints=self._checkpoints,
            records=self._records,
            strategies=self._strategies,
            deadline_monitor=self._deadline_monitor,
            option_stop=self._option_stop,
        )
        self._agreement = HostAgreement(services.hosts, self._strategies, services.announcer)
        self._restart = Restart(spec, options, services, self._strategies.gpu_trouble)
        self._trial: ResumeTrial | None = None  # of a way to resume that is not proven yet
        self._outputs: OutputCopies | None = None  # of what the attempt may begin anew
        self._printed = 0  # the last step that the script printed

    @property
    def can_resume(self) -> bool:
        """Whether there is a known way to go on from a checkpoint."""
        return self._checkpoints.can_resume

    @cached_property
    def _between_failures(self) -> float | None:
        """Seconds, as earlier runs showed; None where they cannot be read."""
        try:
            return between_failures(self._journal.runs(), but=self._spec.run.id)
        except JournalError:
            return None

    def carry_out(self) -> int:
        """Make attempts until there is nothing more to do; return the exit code."""
        with (
            ticking(self._observers, self.observed),
            keeping_standby(self._spec.run.name, self._services) as self._services,
        ):
            return self._carry_out()

    def _carry_out(self) -> int:
        self._stop_requests.listen()
        self._stop_deadline.start()
        typed = bool(self._options.command) or self._spec.earlier is not None
        run_end = RunEnd(self._spec, self._services, self._deadline_monitor, typed=typed)
        outcome, code = RunOutcome.SUPERVISOR_FAILED, PERSON_NEEDED
        try:
            first = first_attempt(self._spec.earlier)
            if refused := self._begin():
                outcome = run_end.refused(refused)
            else:
                code, outcome = self._make_attempts(first, run_end)
        except CommandError as error:
            outcome, code = RunOutcome.NOT_STARTED, error.code
            self._announcer.say(f"{error}. Check that the command works without rocsteady.")
        except NotNeededError:
            outcome, code = RunOutcome.DONE, 0  # torchrun says it
        except LauncherError as error:
            outcome, code = RunOutcome.NOT_DONE, RETRY
            self._announcer.say(f"{error}.")
        except JournalError as error:
            outcome = RunOutcome.NOT_RECORDED
            self._announcer.say(
                f"{error}. Cannot start: the journal is not writable. Free some disk space, or"
                f" check {self._journal.place.folder}"
            )
        except RocsteadyError as error:
            outcome = RunOutcome.NOT_DONE
            run_end.failed(str(error))
        finally:
            run_end.close()
            self._journal_watch.at_end()
            self.outcome = outcome
            self._journal.end_run(self._spec.run.id, outcome)
            self._notices.ended(outcome)
            self._announcer.close()
            self._stop_deadline.stop()
            self._stop_requests.stop_listening()
        return code

    def _make_attempts(self, first: int, run_end: RunEnd) -> tuple[int, RunOutcome]:
        """Start an attempt, watch it, name how it ended, decide, repeat."""
        self._agreement.start()
        decision = None  # that led to the attempt
        for number in count(first):
            if self._stop_requests.stop is not None:
                break
            start = self._prepare(number, decision)
            context, end = self._watch(start)
            failure = self._review.name(context, end)
            decision = self._decide(start, end, failure, attempts=number - first + 1)
            if decision.next is Next.END:
                return run_end.conclude(end, decision, self._failures())
            self._restart.prepare(
                end,
                decision,
                number,
                beginning=self._checkpoints.beginning,
                wait=self._review.backoff.wait(self._checkpoints.room),
                routine=self._review.is_routine,
            )
            gone = self._checkpoints.gone
            if gone is not None and not self._stop_requests.stop:
                decision = self._review.gave_up(f"{gone} is gone", FailureKind.STORAGE_UNAVAILABLE)
                return run_end.conclude(end, decision, self._failures())
            for line in self._checkpoints.take_stock_again():
                self._announcer.say(line)
        self._stop_deadline.reacted()
        return run_end.stopped()

    def _begin(self) -> str:
        """Look back, choose the first strategy, introduce the run; return why it is refused."""
        sweep(self._services.environment, is_alive)
        startup = Startup(self._services, self._strategies, self._spec.folder)
        startup.report_unfinished()
        refused = startup.set_out(self._spec.earlier)
        if not refused:
            self._introduce()
        self._find_checkpoints()
        resumes = self._checkpoints.job.resume is not None or bool(self._checkpoints.argument)
        if self._spec.earlier is not None and not resumes:
            self._restart.take_over(self._spec.earlier)
        return refused

    def _failures(self) -> RunFailures:
        """Return what went wrong in the run."""
        return RunFailures(
            hangs=self._records.incidents,
            crashes=self._review.crashes,
            place=max(self._review.hangs_at, key=self._review.hangs_at.__getitem__, default=""),
            keep=self._strategies.in_force,
        )

    def _introduce(self) -> None:
        self._announcer.show(
            Started(
                name=self._spec.run.name,
                command=self._spec.job.command,
                again=self._spec.earlier is not None,
                settings=describe_changes(Strategy(), self._strategies.strategy),
                observe=self._options.observe,
                method=self._checkpoints.method if self._spec.job.resume is None else None,
            )
        )
        if FAULTS in self._services.environment:
            self._announcer.show(Faults(variable=FAULTS))
        if self._services.terminal == OURS and logging_out_ends_us():
            self._announcer.say(LOGOUT_WARNING)

    def _find_checkpoints(self) -> None:
        """Separate the checkpoints of this run from others."""
        if self._spec.note:
            self._announcer.say(self._spec.note)
        if self._spec.earlier is None:
            if self._options.resume == AUTO and (before := self._runs_before()):
                self._checkpoints.continue_from(min(run.started for run in before))
            self._checkpoints.begin()
        else:
            if put_back(self._spec.folder, self._spec.records, first_attempt(self._spec.earlier)):
                self._announcer.say(
                    "the last restart was not seen to resume; its changes were undone."
                )
            for line in self._checkpoints.take_stock():
                self._announcer.say(line)
            others = [line.run for line in self._journal.runs()]
            self._checkpoints.take_over(self._spec.run, others)

    def _runs_before(self) -> list[Run]:
        """Return the earlier runs of the same command."""
        runs = [line.run for line in self._journal.runs()]
        own, command = self._spec.run.id, self._spec.job.command
        return [run for run in runs if run.command == command and run.id != own]

    def _prepare(self, number: int, decision: Decision | None) -> AttemptStart:
        """Choose the checkpoint to go on from; observers may change what is launched."""
        checkpoint, job = self._checkpoints.newest(), self._checkpoints.job
        self._checkpoints.started()
        launched, before = launch(job), Steps()
        if checkpoint is not None:
            for broken in checkpoint.passed_over:
                self._announcer.say(f"skipped: {broken}.")
            seen = self._step_times.step_at(checkpoint.written)
            before = self._checkpoints.step_of(checkpoint, seen, self._printed)
            launched = launch(job, checkpoint.path)
        if checkpoint is not None or decision is not None:
            self._announce_next(checkpoint, before, decision)
        self._trial = self._try_out(checkpoint)
        self._outputs = None
        if checkpoint is not None and self._checkpoints.method.inferred:
            target = self._spec.records / f"outputs-{number}"
            self._outputs = OutputCopies(self._spec.folder, self._checkpoints.since, target)
        self.observed.pages = None
        self.observed.attempt, self.observed.steps_before = number, before.base
        for observer in self._observers:
            launched = observer.launching(self.observed, launched)
        return AttemptStart(number=number, launch=launched, checkpoint=checkpoint, before=before)

    def _announce_next(
        self, checkpoint: Checkpoint | None, before: Steps, decision: Decision | None
    ) -> None:
        """Announce from where the next attempt goes on, and with what."""
        choice = decision.proposal if decision else None
        title = {option.number: option.title for option in self._options.fallbacks}
        number = decision.fallback if decision else 0
        event = Resumed(
            at=before.words,
            checkpoint=str(checkpoint.path) if checkpoint else "",
            by_itself=self._checkpoints.beginning is StartsAt.BY_ITSELF,
            changes=describe_changes(Strategy(), self._strategies.strategy),
            option=f"option {number} of the plan ({title.get(number, '')})" if number else "",
            in_vain=choice.reverted if choice else "",
        )
        if self._restart.repeats:
            self._announcer.keep(event)
        else:
            self._announcer.show(event)

    def _try_out(self, checkpoint: Checkpoint | None) -> ResumeTrial | None:
        """Make the first restart by a way that was only read from the script cost nothing."""
        if checkpoint is None or not self._checkpoints.is_unproven:
            return None
        within = self._options.timing.resume_trial
        folder, records = self._spec.folder, self._spec.records
        trial = ResumeTrial(folder, records, self._checkpoints.since, within)
        trial.prepare(checkpoint.path)
        return trial

    def _watch(self, start: AttemptStart) -> tuple[AttemptContext, AttemptEnd]:
        """Start the attempt, stay with it to its end, and count how far it came."""
        since = Stopwatch()
        run_id = f"{self._spec.run.name}-{os.getpid()}-{start.number}"
        injection = self._inject(run_id)
        self.observed.pages = injection.pages if injection else None
        try:
            context = AttemptContext(
                spec=self._spec,
                number=start.number,
                run_id=run_id,
                incident=self._records.incidents + 1,
                hung_before=self._review.hung,
                injection=injection,
                learned=self._records.learned(),
                before=start.before.base,
                resumed=bool(start.before.key),
                save_after=self._review.starts.save_after,
                between_failures=self._between_failures,
                planned_restart=self._review.planned_restart,
                strategy=self._strategies.strategy,
            )
            self._deadline_monitor.begin(start.number)
            end = self._recorded(context, start.launch)
            for observer in self._observers:
                observer.ended(self.observed, end)
        finally:
            if injection is not None:
                remove(injection.pages.parent)
        if self._outputs and (names := self._outputs.settle()) and not end.started_over:
            target = near(self._spec.records / f"outputs-{start.number}")
            self._announcer.say(
                f"the restart overwrote {', '.join(names[:3])}; the earlier content is in {target}."
            )
        if end.started_over and self._trial and end.outcome is not Outcome.UNKILLABLE:
            self._trial.put_back(start.number)
        return context, self._counted(context, end, start.before, since)

    def _recorded(self, context: AttemptContext, launched: Launch) -> AttemptEnd:
        """Watch an attempt; the intent to start it is on disk before it is started."""
        attempt = Attempt(
            context,
            self._options,
            self._services,
            step_times=self._step_times,
            on_sample=self._watchers.look,
            on_resumes=self._script_resumes,
            newest_saved=self._checkpoints.newest_saved,
            trial=self._trial,
            leaves=self._leaves,
        )
        number, what = context.number, " ".join(launched.command)[:200]
        row = self._records.begin(number, context.strategy)
        intent = None
        try:
            intent = self._journal.intend(
                IntentKind.START, what, run=self._spec.run.id, attempt=number
            )
        except JournalError:
            if number == first_attempt(self._spec.earlier):  # later there is a run to finish
                self._records.not_started(row)
                raise
        try:
            child = _started(attempt, launched)
        except RocsteadyError as error:
            if intent is not None:
                intent.end(f"not started: {error}")
            self._records.not_started(row)
            raise
        with self._stop_deadline.over(child):
            for observer in self._observers:
                observer.started(self.observed)
            end = attempt.watch(child)
        if intent is not None:
            intent.end(end.outcome.value)
        self._records.end(row, end)
        for note in dict.fromkeys(attempt.notes().values()):
            self._announcer.say(note)
        return end

    def _leaves(self, now: float) -> str:
        """Return why the plan leaves the present option now; "" where nothing follows it."""
        if not self._strategies.fallbacks:
            return ""
        why = self._option_stop.too_slow(now)
        limit = self._options.timing.precious_after.total_seconds()
        may = self.can_resume or self._options.from_scratch or self._option_stop.lasted <= limit
        return why if may else ""

    def _counted(
        self, context: AttemptContext, end: AttemptEnd, before: Steps, since: Stopwatch
    ) -> AttemptEnd:
        """Add from where the attempt started, and how far it came by the script's own count."""
        end = msgspec.structs.replace(end, start=before.key)
        self._printed = end.own_counts.get(PRINTED, self._printed)
        if end.own_step is None and before.key and end.heartbeats:
            end = msgspec.structs.replace(end, unsure=max(1, before.most - before.least))
        self._checkpoints.saved_in(end.saved)
        fails = is_failure(end) or end.outcome is Outcome.PLANNED
        if fails or end.outcome is Outcome.STOPPED:
            for line in self._checkpoints.take_stock(end):
                self._announcer.say(line)
        if not fails:
            return end
        end = self._checkpoints.counted(end, before, context.log)
        if self._checkpoints.job.resume is None and not end.wrote_checkpoint:
            wrote = wrote_model(self._spec.folder, since.earliest(since.wall))
            end = msgspec.structs.replace(end, wrote_checkpoint=wrote)
        return msgspec.structs.replace(end, all_cut_off=self._checkpoints.all_cut_off)

    def _decide(
        self, start: AttemptStart, end: AttemptEnd, failure: Failure | None, *, attempts: int
    ) -> Decision:
        """Decide on this host, agree with the others, write it down and notify people."""
        own = self._review.decide(end, failure, attempts=attempts, started_from=start.checkpoint)
        decision = self._agreement.settle(own, end, failure)
        self._records.decided(start.number, decision)
        blame = end.found.blame if end.found else None
        self._notices.failed(failure, decision, blame.why if blame and blame.ranks else "")
        return decision

    def _script_resumes(self, reported: tuple[Resumes, ...]) -> None:
        """Take up that a script resumes by itself. A way that the job names comes first."""
        job = self._checkpoints.job
        if job.resume is not None and self._checkpoints.method.how is How.UNKNOWN:
            return
        resume = resume_of(reported, (self._spec.folder, *self._spec.seen_as))
        self._checkpoints.resumes_by_itself(msgspec.structs.replace(job, resume=resume))
        keep(resume, self._spec.records)
        self._announcer.say(
            f"the script saves and resumes on its own: checkpoints in {checkpoint_folders(resume)}."
        )

    def _inject(self, run_id: str) -> Injection | None:
        try:
            return inject(run_id, self._services.environment, self._journal.here.process)
        except (OSError, RocsteadyError) as error:
            self._announcer.say(f"cannot observe steps: {error}")
            return None


def _started(attempt: Attempt, launched: Launch) -> AttemptProcesses:
    try:
        return attempt.start(launched)
    except OSError as error:
        text = f"{error.filename or launched.command[0]}: {error.strerror}"
        if error.filename != launched.command[0]:  # our log, say: nothing wrong with it
            raise RocsteadyError(text) from None
        raise CommandError(text, exists=not isinstance(error, FileNotFoundError)) from None
