"""A run: attempts at one job, until it is done, or nothing is left to try.

To understand rocsteady, read ``Supervisor._make_attempts``: start an attempt, watch it, name how it
ended, decide, repeat. All else here prepares that, or cleans up after it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
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
from rocsteady.hangs.heartbeat_pages import Resumes, read_notes
from rocsteady.model import Decision, FailureKind, IntentKind, Outcome, RunOutcome, Strategy
from rocsteady.run.attempt.attempt import Attempt
from rocsteady.run.attempt.attempt_end import AttemptEnd, is_failure
from rocsteady.run.attempt.injection import Injection, inject, remove, sweep
from rocsteady.run.attempt.progress import PRINTED, StepTimes
from rocsteady.run.attempt.watchers import Watchers
from rocsteady.run.checkpoints.backup import wrote_model
from rocsteady.run.checkpoints.checkpoints import Checkpoints, StartsAt, StepEstimate
from rocsteady.run.checkpoints.resume import Checkpoint, launch
from rocsteady.run.checkpoints.resume_detection import ResumeSign
from rocsteady.run.checkpoints.resume_trial import (
    COPIES,
    OutputCopies,
    ResumeTrial,
    Undone,
    put_back,
)
from rocsteady.run.checkpoints.script_resume import (
    checkpoint_folders,
    resume_of,
)
from rocsteady.run.context import AttemptContext, RunSpec, Services
from rocsteady.run.engines.plain_command import AttemptProcesses
from rocsteady.run.engines.standby import keeping_standby
from rocsteady.run.hosts.host_decision import HostAgreement
from rocsteady.run.job.values import Resume
from rocsteady.run.observer import ObservedRun, Observer, ticking
from rocsteady.run.options import AUTO, Fallback, RunOptions
from rocsteady.run.recovery.attempt_review import AttemptReview
from rocsteady.run.recovery.decision import (
    Here,
    decide,
    first_decision,
    gives_up,
    go_on,
    in_force,
    offers,
    same_again,
    stop_rule,
    too_slow,
)
from rocsteady.run.recovery.history import History, history_of
from rocsteady.run.recovery.machine import run_machine
from rocsteady.run.recovery.restart_preparation import Restart
from rocsteady.run.run_end import RunEnd
from rocsteady.run.startup import announce_begin, first_attempt, report_unfinished
from rocsteady.run.stop_deadline import StopDeadline
from rocsteady.run.stopwatch import Stopwatch
from rocsteady.run.telling.deadline_monitor import DeadlineMonitor
from rocsteady.run.telling.events import Faults, Resumed, Started
from rocsteady.run.telling.journal_records import JournalRecords, JournalWatch
from rocsteady.run.telling.notifications import RunNotices
from rocsteady.store.account_records import keep, kept
from rocsteady.store.forecast import between_failures
from rocsteady.store.identity import is_alive, script_fingerprint
from rocsteady.store.location import check_own
from rocsteady.store.values import AttemptRecord, Sample
from rocsteady.wording import near, plural

MAX_NAMED = 3  # files


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
        self._machine = run_machine(services, job.command, spec.folder)
        self._checkpoints = Checkpoints(
            job, spec.folder, spec.records, spec.origin, run.started, seen_as=spec.seen_as
        )
        self._checkpoints.others_write = services.hosts is not None
        self._step_times = StepTimes(earlier.progress if earlier else ())
        self._records = JournalRecords(
            run,
            script_fingerprint(job.command, str(spec.folder)),
            services.journal,
            services.memory if services.learns else None,
            history=history_of(earlier.events if earlier else (), options.strategy),
        )
        self.observed = ObservedRun(run, self._step_times, self._history, services)
        self._journal_watch = JournalWatch(services.journal, services.announcer)
        self._notices = RunNotices(run, services.announcer, services.notifier)
        self._stop_deadline = StopDeadline(run, services, options.timing.stopping)
        self._stop_requests.reacted = self._stop_deadline.reacted
        self._deadline_monitor = DeadlineMonitor(
            run,
            job.deadline,
            services.announcer,
            options=lambda: self._fallbacks,
            resumes=lambda: self.can_resume,
            between=lambda: self._between_failures,
            earlier=earlier,
            slipped=self._notices.will_be_late,
        )
        points = self._deadline_monitor.option_points
        self._judged = points[-1].at if points else 0.0  # the pace of the option, when last
        typed = bool(options.command) or earlier is not None
        self._run_end = RunEnd(spec, services, self._deadline_monitor, typed=typed)
        self._watchers = Watchers[Sample](
            services.announcer,
            {
                "warnings about the journal": lambda _: self._journal_watch.look(),
                "a forecast": self._deadline_monitor.seen,
                "the count of busy GPUs": self._run_end.look,
                "what is measured of it": self._sampled,
            },
        )
        self._review = AttemptReview(
            spec,
            options,
            services,
            checkpoints=self._checkpoints,
            machine=self._machine,
            deadline_monitor=self._deadline_monitor,
        )
        self._agreement = HostAgreement(
            services.hosts, options, self._machine, self._checkpoints, services.announcer
        )
        self._restart = Restart(spec, options, services)
        self._resumed: Resumed | None = None  # what is said once the attempt goes on
        self._trial: ResumeTrial | None = None  # of a way to resume that is not proven yet
        self._outputs: OutputCopies | None = None  # of what the attempt may begin anew
        self._printed = 0  # the last step that the script printed
        self._is_routine = False  # nothing new is to be said of the next attempt
        self._checkpoints.avoid = self._history.avoid

    @property
    def can_resume(self) -> bool:
        """Whether there is a known way to go on from a checkpoint."""
        return self._checkpoints.can_resume

    @property
    def _history(self) -> History:
        return self._records.history

    @property
    def _fallbacks(self) -> tuple[Fallback, ...]:
        taken = self._history.fallen_to
        return tuple(each for each in self._options.fallbacks if each.number not in taken)

    @cached_property
    def _between_failures(self) -> float | None:
        """Seconds, as earlier runs showed; None where they cannot be read."""
        try:
            return between_failures(self._journal.runs(), but=self._spec.run.id)
        except JournalError:
            return None

    def carry_out(self) -> int:
        """Make attempts until there is nothing more to do; return the exit code."""
        with ExitStack() as stack:
            self._open(stack)
            code = PERSON_NEEDED
            try:
                first = first_attempt(self._spec.earlier)
                if refused := self._begin(first):
                    self.outcome = self._run_end.refused(refused)
                else:
                    code, self.outcome = self._make_attempts(first)
            except CommandError as error:
                self.outcome, code = RunOutcome.NOT_STARTED, error.code
                self._announcer.say(f"{error}. Check that the command works without rocsteady.")
            except NotNeededError:
                self.outcome, code = RunOutcome.DONE, 0  # torchrun says it
            except LauncherError as error:
                self.outcome, code = RunOutcome.NOT_DONE, RETRY
                self._announcer.say(f"{error}.")
            except JournalError as error:
                self.outcome = RunOutcome.NOT_RECORDED
                self._announcer.say(
                    f"{error}. Cannot start: the journal is not writable. Free some disk space, or"
                    f" check {self._journal.place.folder}"
                )
            except RocsteadyError as error:
                self.outcome = RunOutcome.NOT_DONE
                self._run_end.failed(str(error))
        return code

    def _open(self, stack: ExitStack) -> None:
        """Begin what ends with the run; the last of it is closed first."""
        stack.enter_context(ticking(self._observers, self.observed))
        standby = keeping_standby(self._spec.run.name, self._services)
        self._services = stack.enter_context(standby)
        self._stop_requests.listen()
        stack.callback(self._stop_requests.stop_listening)
        self._stop_deadline.start()
        stack.callback(self._stop_deadline.stop)
        stack.callback(self._announcer.close)
        stack.callback(self._end)
        stack.callback(self._journal_watch.at_end)

    def _end(self) -> None:
        self.outcome = self.outcome or RunOutcome.SUPERVISOR_FAILED
        self._journal.end_run(self._spec.run, self.outcome)
        self._notices.ended(self.outcome)

    def _make_attempts(self, first: int) -> tuple[int, RunOutcome]:
        """Start an attempt, watch it, name how it ended, decide, repeat."""
        decision = self._decide_what_was_left(first - 1)  # that leads to the next attempt
        for number in count(first):
            if self._stop_requests.stop is not None:
                break
            end = self._watch(self._prepare(number, decision))
            decision = self._agreement.agree(self._decide(), self._history)
            self._take(number, decision, end)
            if not decision.ends:
                decision = self._wait(number, decision, end)
            if decision.ends:
                keep = in_force(self._history, self._options, self._machine)
                return self._run_end.conclude(end, decision, self._history, keep)
            for line in self._checkpoints.take_stock_again():
                self._announcer.say(line)
        self._stop_deadline.reacted()
        return self._run_end.stopped()

    def _decide_what_was_left(self, number: int) -> Decision | None:
        """Decide what an earlier supervisor had no time to, and agree on it."""
        history, last, decision = self._history, self._history.last, None
        if not history.decided and last is not None and last.failed:
            left = self._decide()
            if not left.ends:  # somebody has begun anew what would have ended
                decision = left
                self._take(number, left)
        agreed = self._agreement.start(go_on(history), history)
        if agreed.host is not None:
            self._take(number, agreed)
            failed = plural(len(agreed.tried or ()), "failure")
            self._announcer.say(f"using the history of the other hosts: {failed} of this job.")
        return decision

    def _decide(self) -> Decision:
        """Decide on this host; a fault of ours costs the remedy, never the run."""
        history, options = self._history, self._options
        try:
            return decide(history, options, self._review.here)
        except Exception as error:  # noqa: BLE001
            self._announcer.bug("retrying without changes", error)
        return same_again(history, options, can_resume=self.can_resume)

    def _take(self, number: int, decision: Decision, end: AttemptEnd | None = None) -> None:
        """Record what was decided, then announce it."""
        self._records.decided(number, decision)
        history = self._history
        self._checkpoints.avoid = history.avoid
        if decision.fallback:
            self._deadline_monitor.other_option()
        self._review.announce(decision, history)
        blame = end.found.blame if end and end.found else None
        self._notices.failed(history.failure, decision, blame.why if blame and blame.ranks else "")

    def _wait(self, number: int, decision: Decision, end: AttemptEnd) -> Decision:
        """Get ready for the next attempt; return an end if what it needs is still gone."""
        history, checkpoints = self._history, self._checkpoints
        self._is_routine = (decision.waits and history.repeats) or history.is_routine
        self._review.announce_wait(decision, history)
        self._restart.prepare(
            end,
            decision,
            number,
            beginning=checkpoints.beginning,
            cleared=self._review.drives.cleared(history, checkpoints.room),
        )
        gone = checkpoints.gone
        if gone is None or self._stop_requests.stop:
            return decision
        ours = self._review.in_allocation
        decision = gives_up(f"{gone} is gone", history, self._options, in_allocation=ours)
        decision = msgspec.structs.replace(decision, kind=FailureKind.STORAGE_UNAVAILABLE)
        self._records.decided(number, decision)
        return decision

    def _begin(self, first: int) -> str:
        """Look back, choose the first strategy, introduce the run; return why it is refused."""
        sweep(self._services.environment, is_alive)
        report_unfinished(self._services, self._machine, self._spec.folder)
        history, here = self._history, Here(machine=self._machine, now=time.time())
        decision = first_decision(history, self._options, here)
        announce_begin(self._announcer.say, decision, offers(self._options, self._machine))
        if not decision.ends:
            if decision.strategy != history.strategy or decision.asked:
                self._records.decided(first - 1, decision)
            self._introduce()
        self._find_checkpoints()
        resumes = self._checkpoints.job.resume is not None or bool(self._checkpoints.argument)
        if self._spec.earlier is not None and not resumes:
            self._restart.take_over(self._spec.earlier)
        return decision.why if decision.ends else ""

    def _introduce(self) -> None:
        self._announcer.show(
            Started(
                name=self._spec.run.name,
                command=self._spec.job.command,
                again=self._spec.earlier is not None,
                settings=describe_changes(Strategy(), self._history.strategy),
                observe=self._options.observe,
                method=self._checkpoints.method if self._spec.job.resume is None else None,
            )
        )
        if FAULTS in self._services.environment:
            self._announcer.show(Faults(variable=FAULTS))

    def _find_checkpoints(self) -> None:
        """Separate the checkpoints of this run from others."""
        if self._spec.note:
            self._announcer.say(self._spec.note)
        if self._spec.earlier is None:
            if self._options.resume == AUTO:
                own, command = self._spec.run.id, self._spec.job.command
                runs = [line.run for line in self._journal.runs() if line.run.id != own]
                if before := [run.started for run in runs if run.command == command]:
                    self._checkpoints.continue_from(min(before))
            self._checkpoints.begin()
        else:
            number = first_attempt(self._spec.earlier)
            undone = put_back(self._spec.folder, self._spec.records, number)
            if undone.put_back:
                self._announcer.say(
                    "could not confirm that the last restart resumed; undid its changes."
                )
            self._say_undone(undone, number)
            for line in self._checkpoints.take_stock():
                self._announcer.say(line)
            others = [line.run for line in self._journal.runs()]
            self._checkpoints.take_over(self._spec.run, others)

    def _prepare(self, number: int, decision: Decision | None) -> AttemptContext:
        """Choose the checkpoint to go on from; observers may change what is launched."""
        check_own(self._spec.records)
        checkpoint, job = self._checkpoints.newest(), self._checkpoints.job
        self._checkpoints.started()
        launched, before = launch(job), StepEstimate()
        if checkpoint is not None:
            for broken in checkpoint.passed_over:
                self._announcer.say(f"skipped: {broken}.")
            seen = self._step_times.step_at(checkpoint.written)
            before = self._checkpoints.step_of(checkpoint, seen, self._printed)
            seen_as = next(iter(self._spec.seen_as), self._spec.folder)
            launched = launch(job, checkpoint.path, seen_as)
        self._resumed = None
        if checkpoint is not None or decision is not None:
            self._announce_next(checkpoint, before, decision)
        self._trial = self._try_out(checkpoint)
        self._outputs = None
        if checkpoint is not None and self._checkpoints.method.inferred:
            target = self._spec.records / f"outputs-{number}"
            self._outputs = OutputCopies(self._spec.folder, self._checkpoints.since, target)
        self.observed.pages = None
        self.observed.attempt, self.observed.steps_before = number, before.best
        for observer in self._observers:
            launched = observer.launching(self.observed, launched)
        history = self._history
        return AttemptContext(
            spec=self._spec,
            number=number,
            launch=launched,
            checkpoint=checkpoint,
            before=before,
            run_id=f"{self._spec.run.name}-{os.getpid()}-{number}",
            incident=history.incidents + 1,
            hung_before=history.hung,
            learned=self._records.learned(),
            save_after=history.save_after,
            between_failures=self._between_failures,
            strategy=history.strategy,
        )

    def _announce_next(
        self, checkpoint: Checkpoint | None, before: StepEstimate, decision: Decision | None
    ) -> None:
        """Announce with what the next attempt begins; or from where it goes on, once it does."""
        title = {option.number: option.title for option in self._options.fallbacks}
        number = decision.fallback if decision else 0
        event = Resumed(
            at=before.words,
            checkpoint=str(checkpoint.path) if checkpoint else "",
            by_itself=self._checkpoints.beginning is StartsAt.BY_ITSELF,
            changes=describe_changes(Strategy(), self._history.strategy),
            option=f"option {number} of the plan ({title.get(number, '')})" if number else "",
            in_vain=decision.reverted if decision else "",
        )
        if checkpoint is None:
            self._show_next(event)
        else:
            self._resumed = event

    def _sampled(self, sample: Sample) -> None:
        for observer in self._observers:
            observer.sampled(self.observed, sample)

    def _has_resumed(self) -> None:
        """Announce it once it is true."""
        if self._resumed is not None:
            self._show_next(self._resumed)

    def _show_next(self, event: Resumed) -> None:
        (self._announcer.keep if self._is_routine else self._announcer.show)(event)

    def _try_out(self, checkpoint: Checkpoint | None) -> ResumeTrial | None:
        """Back up outputs before the first restart whose resume method is only a guess."""
        if checkpoint is None or not self._checkpoints.is_unproven:
            return None
        within = self._options.timing.resume_trial
        folder, records = self._spec.folder, self._spec.records
        trial = ResumeTrial(folder, records, self._checkpoints.since, within)
        trial.prepare(checkpoint.path)
        return trial

    def _watch(self, context: AttemptContext) -> AttemptEnd:
        """Start the attempt, stay with it to its end, and record what came of it."""
        since, history = Stopwatch(), self._history
        injection = self._inject(context.run_id)
        self.observed.pages = injection.pages if injection else None
        try:
            context = msgspec.structs.replace(context, injection=injection)
            self._deadline_monitor.begin(context.number)
            row, end = self._started_and_watched(context)
            for observer in self._observers:
                observer.ended(self.observed, end)
        finally:
            if injection is not None:
                remove(injection.pages.parent)
        if self._outputs and (names := self._outputs.settle()) and not end.started_over:
            target = near(self._spec.records / f"outputs-{context.number}")
            self._announcer.say(
                f"{', '.join(names[:MAX_NAMED])}: begun anew since the restart; what was there"
                f" before is in {target}."
            )
        if end.started_over and self._trial and end.outcome is not Outcome.UNKILLABLE:
            self._say_undone(self._trial.put_back(context.number), context.number)
        end = self._counted(context, end, since)
        if is_failure(end) and self._services.hosts is None and self._run_end.has_trained(end):
            end = msgspec.structs.replace(end, trained=True)
        self._checkpoints.ended(end)
        self._records.end(row, end)
        if failed := self._review.name(context, end, history):
            self._records.failed(context.number, *failed)
            for observer in self._observers:
                observer.failed(self.observed, failed[0])
        if history.has_helped:
            self._machine.remember(
                history.remedy, history.answered, self._spec.run.name, time.time()
            )
        return end

    def _say_undone(self, undone: Undone, number: int) -> None:
        """Name what changed meanwhile and may be of others: it was not touched."""
        if undone.left:
            copies = near(self._spec.records / f"started-over-{number}" / COPIES)
            more = ", ..." if len(undone.left) > MAX_NAMED else ""
            self._announcer.say(
                f"left as they are, as it is not known who wrote them:"
                f" {', '.join(undone.left[:MAX_NAMED])}{more}; copies from before are in {copies}."
            )

    def _started_and_watched(self, context: AttemptContext) -> tuple[AttemptRecord, AttemptEnd]:
        """Watch an attempt; the intent to start it is on disk before it is started."""
        attempt = Attempt(
            context,
            self._options,
            self._services,
            step_times=self._step_times,
            on_sample=self._watchers.look,
            on_resumes=self._script_resumes,
            on_resumed=self._has_resumed,
            trial=self._trial,
            leaves=self._leaves,
        )
        number, what = context.number, " ".join(context.launch.command)[:200]
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
            child = _started(attempt, context.launch.command)
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
        notes = read_notes(context.pages) if context.pages else {}  # why processes have no page
        for note in dict.fromkeys(notes.values()):
            self._announcer.say(note)
        return row, end

    def _leaves(self, now: float) -> str:
        """Return why the plan leaves the present option now; "" where nothing follows it."""
        rule, began = stop_rule(self._history, self._options), self._history.option_began
        if rule is None or began is None or not self._fallbacks:
            return ""
        over = began + rule.within
        if not self._judged < over <= now:
            return ""
        self._judged = now  # whatever comes of it
        why = too_slow(rule, self._deadline_monitor.option_points, now)
        limit = self._options.timing.precious_after.total_seconds()
        may = self.can_resume or self._options.from_scratch or rule.within <= limit
        return why if may else ""

    def _counted(self, context: AttemptContext, end: AttemptEnd, since: Stopwatch) -> AttemptEnd:
        """Add how far the attempt came by the script's own count."""
        before = context.before
        self._printed = end.own_counts.get(PRINTED, self._printed)
        if end.own_step is None and before.key and end.heartbeats:
            end = msgspec.structs.replace(end, unsure=max(1, before.high - before.low))
        self._checkpoints.saved_in(end.saved, seen=end.saved.seen and bool(end.heartbeats))
        fails = is_failure(end)
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

    def _script_resumes(self, reported: tuple[Resumes, ...]) -> None:
        """Take up that a script resumes by itself. A way that the job names comes first."""
        job = self._checkpoints.job
        if job.resume is not None and self._checkpoints.method.how is ResumeSign.UNKNOWN:
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


def _started(attempt: Attempt, command: Sequence[str]) -> AttemptProcesses:
    try:
        return attempt.start()
    except OSError as error:
        text = f"{error.filename or command[0]}: {error.strerror}"
        if error.filename != command[0]:  # our log, say: nothing wrong with it
            raise RocsteadyError(text) from None
        raise CommandError(text, exists=not isinstance(error, FileNotFoundError)) from None
