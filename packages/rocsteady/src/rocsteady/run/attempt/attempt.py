"""One attempt: start it, watch it, collect the evidence, end it if it is hung; say how it ended."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable

import msgspec

from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.hangs.heartbeat_pages import (
    CheckpointRead,
    Resumes,
    SavedFiles,
    SettingOutcome,
    read_applied,
    read_batch_split,
    read_checkpoint,
    read_loader_facts,
    read_pages,
    read_precision,
    read_raised,
    read_resumes,
    read_saved,
)
from rocsteady.hangs.judgment.judgment import (
    Pulse,
    begin,
    interrupted,
    is_read,
    judge,
    learn,
    occupied,
    waits_for_gpu,
    withdrawn,
    worth_stopping,
)
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.looking.gpu_counters import GpuSigns
from rocsteady.hangs.looking.memory import GroupMemory, oom_kills_since, read_groups
from rocsteady.hangs.looking.process_tree import MemberCollector
from rocsteady.hangs.looking.snapshot import take_snapshot
from rocsteady.hangs.looking.stacks import KeptStacks, KnownStacks
from rocsteady.hangs.output import OutputCounter
from rocsteady.hangs.values import Snapshot, Tick
from rocsteady.model import CPU, IntentKind, Outcome, RunState
from rocsteady.run.attempt.attempt_end import AttemptEnd, HangEvidence, mark_log_as_stopped
from rocsteady.run.attempt.gauges import Gauges
from rocsteady.run.attempt.hang_evidence import hang_evidence
from rocsteady.run.attempt.injection import HeartbeatCheck, ask_to_save
from rocsteady.run.attempt.progress import AttemptProgress, LiveProcesses, StepTimes
from rocsteady.run.attempt.rank_waits import RankWaitsFile
from rocsteady.run.attempt.strategy_environment import environment
from rocsteady.run.attempt.termination import Suspension, end_tree, interrupted_twice, named
from rocsteady.run.attempt.verdict_messages import RefusedSettings, SpoiltLoss, VerdictMessages
from rocsteady.run.attempt.watch_requests import RequestedActions
from rocsteady.run.attempt.watchers import Look, Watchers
from rocsteady.run.checkpoints.resume_trial import ResumeTrial
from rocsteady.run.context import AttemptContext, Services
from rocsteady.run.engines import plain_command as plain
from rocsteady.run.engines.plain_command import AttemptProcesses
from rocsteady.run.hosts.job_hang import JobHang
from rocsteady.run.job.values import Total
from rocsteady.run.options import RunOptions
from rocsteady.run.stopwatch import boot_clock
from rocsteady.run.telling.slow_rank import SlowRank
from rocsteady.store.values import Sample
from rocsteady.system.child import Start
from rocsteady.system.child_end import Exit, Stopping

LAST_SNAPSHOTS = 3  # before a signal, until one confirms the verdict
LONGEST_LOOK = 15.0  # seconds, on a busy machine
FEW_STEPS, SETTLED = 10, 20.0  # steps and seconds by which a GPU would have been used
MAX_SNAPSHOTS = 40  # kept; older ones say nothing more


class Attempt:
    def __init__(  # noqa: PLR0913 - what it is about, and four callbacks
        self,
        context: AttemptContext,
        options: RunOptions,
        services: Services,
        *,
        step_times: StepTimes,
        on_sample: Callable[[Sample], None],
        on_resumes: Callable[[tuple[Resumes, ...]], None],  # once the script says that it does
        on_resumed: Callable[[], None],  # once it is seen to go on
        trial: ResumeTrial | None,  # of a way to resume that is not proven yet
        leaves: Callable[[float], str],  # why the option is left now; "": it is kept
    ) -> None:
        self._context, self._options, self._services = context, options, services
        self._on_sample, self._on_resumes, self._on_resumed = on_sample, on_resumes, on_resumed
        self._trial, self._leaves = trial, leaves
        self._leaving = ""  # why the option is left now
        self._announcer, self._timing = services.announcer, options.timing
        self._patience = options.patience
        total = context.spec.job.total or Total()
        self._messages = VerdictMessages(
            services.announcer, observe=options.observe, before=context.hung_before
        )
        self._began = time.monotonic()
        self._heartbeat_check = HeartbeatCheck(
            services.announcer, pages=context.pages, began=self._began
        )
        apart = services.hosts is not None
        self._pulse: Pulse = begin(self._began, boot_clock(), context.learned, apart=apart)
        self._counter = OutputCounter(total.log)
        self._gauges = Gauges(self._counter.take_loss, options.timing.gauges_every)
        self._loss = SpoiltLoss()
        self._snapshots: tuple[Snapshot, ...] = ()
        self._looking, self._judging = 0.0, False  # seconds of the last look; it is to be judged
        self._known_stacks = KnownStacks(KeptStacks(), KeptStacks())
        self._progress = AttemptProgress(
            lambda: self._counter.progress,
            total.count,
            before=context.before.best,
            resumed=bool(context.before.key),
            step_times=step_times,
            by_log=bool(total.log),
        )
        self._step_times, self._is_place_known = step_times, False
        self._live_processes = LiveProcesses()
        self._suspension = Suspension(options, services.announcer)
        self._unwatched = False  # because of a fault of ours
        self._resumes = False  # the script has told that it does
        self._resumed = False  # and it was seen to
        self._interrupts = 0  # that the script was sent
        self._groups: tuple[GroupMemory, ...] = ()  # that the command is in, as it starts
        self._members, self._missed_gpu = MemberCollector(self._began), False
        self._gpu_signs = GpuSigns(self._began)
        self._refusals = RefusedSettings(services.announcer, context, self._began)
        self._job_hang = JobHang(
            services.hosts,
            services.announcer,
            options.patience,
            several_hosts=options.several_hosts,
        )
        self._asked = RequestedActions(context, options, services)
        self._total: int | None = None  # steps of the whole job
        self._watchers = self._watchers_of(RankWaitsFile(context.pages))

    def _watchers_of(self, rank_waits: RankWaitsFile) -> Watchers[Look]:
        messages, slow_rank = self._messages, SlowRank(self._announcer.say)
        return Watchers(
            self._announcer,
            {
                "the list of its processes": lambda now: self._members.poll(now.tree, now.at),
                "refused settings": lambda now: self._refusals.poll(now.at),
                "the waits of its ranks": lambda now: rank_waits.update(now.verdict),
                "the search for missing hooks": lambda now: self._heartbeat_check.poll(
                    now.tree, now.at, beats=bool(now.heartbeats)
                ),
                "messages about pauses": lambda now: messages.tell(
                    now.verdict, now.step, inspected=now.inspected
                ),
                "messages about the loss": lambda now: messages.loss(self._loss_since(), now.step),
                "messages about saves": lambda now: messages.saves(now.heartbeats),
                "the look for a slow rank": lambda now: slow_rank.look(now.at, now.heartbeats),
                "where it goes on": lambda _: self._find_resumed(),
                "the look for GPU work": self._miss_gpu_work,
                "the time limit of its option": lambda _: self._judge_option(),
            },
        )

    def _miss_gpu_work(self, now: Look) -> None:
        """Say once that nothing was computed on a GPU, though one is free and should be used."""
        steps = max((beat.step for beat in now.heartbeats), default=0)
        if self._missed_gpu or steps < FEW_STEPS or now.at < self._began + SETTLED:
            return
        self._missed_gpu = True
        if self._context.strategy.device != CPU and self._members.free_gpus():
            self._announcer.say(
                f"no GPU work was seen in {steps} steps, and a GPU is free. If the script should"
                " use it: rocsteady doctor"
            )

    def start(self) -> AttemptProcesses:
        """Start the command. Raises OSError if it cannot be started."""
        launch = self._context.launch
        chosen = plain.chosen_rendezvous(launch.command)
        if chosen not in ("", "rocsteady") and self._context.number == 1:
            self._announcer.say(f"torchrun uses the rendezvous that you chose: {chosen}.")
        self._announcer.flush()
        return self._services.engine(
            Start(
                command=launch.command,
                environment={**self._environment(), **launch.environment},
                folder=self._context.spec.folder,
                run_id=self._context.run_id,
                log=self._context.log,
                on_output=lambda chunk: self._counter.feed(chunk, time.monotonic()),
                terminal=self._services.terminal,
                log_rules=self._context.spec.job.log_rules,
            )
        )

    def watch(self, child: AttemptProcesses) -> AttemptEnd:
        self._announcer.through = child.tell
        self._services.stop_requests.pass_on = child.pass_on
        self._groups = read_groups((child.pid,))
        try:
            end = self._watch(child)
        finally:
            self._services.stop_requests.pass_on = None
            self._announcer.through = None
            self._asked.end_pause(child)
            child.close()
            self._announcer.mid_line = child.mid_line
        mark_log_as_stopped(self._context.log, end)
        return end

    def _environment(self) -> dict[str, str]:
        injection, existing = self._context.injection, dict(self._services.environment)
        added, unset = environment(self._context.strategy, existing)
        existing = {name: value for name, value in existing.items() if name not in unset} | added
        existing |= self._context.saving | (self._trial.environment if self._trial else {})
        if injection is None:
            return existing
        added = injection.environment(existing, run_id=self._context.run_id, supervisor=os.getpid())
        return {**existing, **added}

    def _watch(self, child: AttemptProcesses) -> AttemptEnd:
        """Tick until the command ends, the user wants it to, or it is hung."""
        stop_requests = self._services.stop_requests
        while True:
            exited = child.wait(self._timing.tick.total_seconds())
            if exited is not None:
                self._counter.end()
                self._carefully(child, alive=False)
                if left := named(child.left_running()):
                    self._announcer.say(
                        f"the command ended; terminating the processes it left: {left}."
                    )
                outcome = Outcome.REPLACED if exited.replaced else Outcome.BY_ITSELF
                return self._end(child, outcome, exited)
            if stop_requests.terminal_lost:
                stop_requests.terminal_lost = False
                child.detach_terminal()
            if stop_requests.suspend:
                stop_requests.suspend = False
                child.suspend()
            if stop_requests.stop is not None:
                self._asked.end_pause(child)  # so that it can save
                return self._stopped(child, self._timing.stopping)
            if interrupted_twice(child):
                return self._interrupted_twice(child)
            if self._is_paused(child):
                continue
            ended = self._carefully(child, alive=True)
            if ended is not None:
                return ended

    def _is_paused(self, child: AttemptProcesses) -> bool:
        """Do what the user asks for meanwhile; tell whether that is a pause."""
        try:
            self._asked.act(child)
        except Exception as error:  # noqa: BLE001 - it costs the request, never the run
            self._announcer.bug("the run continues", error)
            self._asked.end_pause(child)
        return self._asked.paused

    def _interrupted_twice(self, child: AttemptProcesses) -> AttemptEnd:
        self._announcer.say(
            "the script ignored two interrupts; terminating it. Press ^C again to kill it at once."
        )
        stopping = self._timing.stopping
        quick = msgspec.structs.replace(stopping, save_wait=stopping.terminate_wait)
        return self._stopped(child, quick)

    def _carefully(self, child: AttemptProcesses, *, alive: bool) -> AttemptEnd | None:
        """Look and act. A fault of ours costs the watching, never the run."""
        if self._unwatched:
            return None
        try:
            verdict = self._tick(child, alive=alive)
            if alive and self._leaving:
                self._announcer.say(f"leaving this option: {self._leaving}.")
                return self._stopped(child, self._timing.stopping, Outcome.LEFT)
            return self._act(child, verdict) if alive else None
        except RocsteadyError as error:
            self._unwatched = True
            self._announcer.say(f"{error}; the run continues unwatched.")
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
            self._unwatched = True
            self._announcer.bug("the run continues unwatched", error)
            return None

    def _tick(self, child: AttemptProcesses, *, alive: bool) -> Verdict:
        now = time.monotonic()
        tree = functools.cache(child.tree)  # listing all processes is expensive: once per tick
        self._progress.look()
        if self._context.injection is not None:
            known = [beat.pid for beat in self._progress.heartbeats if beat.step]
            beats = read_pages(self._context.injection.pages, known)
            if known and not beats and not self._context.injection.pages.exists():
                raise RocsteadyError(f"somebody removed {self._context.injection.pages.parent}")
            self._progress.heartbeats = beats
            if not self._resumes and (resumes := read_resumes(self._context.injection.pages)):
                self._resumes = True
                self._on_resumes(resumes)
        living = self._live_processes.among(self._progress.heartbeats)
        tick = Tick(
            at=now,
            boot=boot_clock(),
            heartbeats=self._job_hang.seen(living),
            output=self._counter.output,
            alive=alive,
            looking=self._looking,
        )
        if len(child.interrupts) > self._interrupts:
            self._interrupts = len(child.interrupts)
            self._pulse, self._snapshots = interrupted(self._pulse, now), ()
        before, used = self._pulse.progress, time.process_time()
        self._pulse, verdict = judge(
            self._pulse, tick, self._snapshots, self._patience, self._services.waits
        )
        if self._pulse.progress != before:
            self._snapshots = ()
        self._find_place_in_job()
        sample = self._progress.seen(now, verdict, self._gauges.read(now, tree))
        self._services.journal.progressed(self._context.spec.run.id, self._context.number, sample)
        self._total = sample.total
        self._on_sample(sample)
        self._looking += time.process_time() - used if self._judging else 0.0
        self._judging = alive and verdict.examine
        if self._judging:
            self._examine(child, verdict)
        if alive:
            progress, inspected = self._progress, bool(self._snapshots)
            self._watchers.look(
                Look(now, verdict, progress.step, progress.heartbeats, tree, inspected)
            )
        return verdict

    def _loss_since(self, *, ended: bool = False) -> int:
        """Return the step by which the loss was not finite any more; 0: it is."""
        printed, progress = self._counter.losses_not_finite, self._progress
        return self._loss.since(
            progress.heartbeats, progress.before, printed, progress.step or 0, ended=ended
        )

    def _judge_option(self) -> None:
        self._leaving = self._leaves(time.time())

    def _find_resumed(self, *, ended: bool = False) -> None:
        """Find out that it goes on: it has read a checkpoint, or makes steps as its job says.

        Of what has no page and prints no steps that is said at its end, where nothing speaks
        against it.
        """
        pages, progress = self._context.pages, self._progress
        if self._resumed or (self._trial is not None and not self._trial.proven):
            return
        self._resumed = (
            progress.first_step is not None
            or (pages is not None and read_checkpoint(pages) is not None)
            or (ended and not progress.heartbeats)
        )
        if self._resumed:
            self._on_resumed()

    def _find_place_in_job(self) -> None:
        """Find out, at the first step, from which step of the job a script resumed by itself."""
        pages = self._context.pages
        if self._is_place_known or not any(beat.step for beat in self._progress.heartbeats):
            return
        self._is_place_known = True
        read = read_checkpoint(pages) if pages is not None else None
        if read is not None and self._step_times.covers(read.written / 1e9):
            self._progress.resumes_at(*self._step_times.saved_step(read.written / 1e9))

    def _examine(self, child: AttemptProcesses, verdict: Verdict) -> None:
        first = not self._snapshots and not verdict.over
        if first and not self._options.observe and self._context.pages is not None:
            ask_to_save(self._context.pages)
        self._take_snapshot(child)

    def _take_snapshot(self, child: AttemptProcesses) -> None:
        """Look closer; at what the GPU says too, if that is waited for."""
        pids, within = child.tree(), self._timing.snapshot_within
        began, used = time.monotonic(), time.process_time()
        taken = take_snapshot(
            pids,
            stacks=True,
            within=within,
            native=lambda seen: worth_stopping(self._pulse, seen, self._services.waits),
            known=self._known_stacks,
        )
        if waits_for_gpu(self._pulse):
            signs = self._gpu_signs.read(pids, self._members.members(), within)
            taken = msgspec.structs.replace(taken, gpu_signs=signs)
        self._snapshots = (*self._snapshots, taken)[-MAX_SNAPSHOTS:]
        self._looking = time.process_time() - used
        if time.monotonic() - began < LONGEST_LOOK:  # else we were stopped ourselves
            self._pulse = occupied(self._pulse, time.monotonic())

    def _act(self, child: AttemptProcesses, verdict: Verdict) -> AttemptEnd | None:
        if self._trial is not None and self._has_started_over(self._trial):
            stopped = child.stop(self._timing.stopping, first=None)  # at once: it may not save
            outcome = Outcome.UNKILLABLE if stopped.unkillable else Outcome.STARTED_OVER
            return self._end(child, outcome, stopped.exit)
        if verdict.condition is RunState.STOPPED:
            self._suspension.seen(child, self._snapshots[-1] if self._snapshots else None)
        else:
            self._suspension.over()
        hangs = self._job_hang.is_proven(
            verdict,
            self._live_processes.among(self._progress.heartbeats),
            lambda: self._confirmed(child),
        )
        return self._hung(child, verdict) if hangs else None

    def _has_started_over(self, trial: ResumeTrial) -> bool:
        pages = self._context.pages
        if not trial.proven and pages is not None:
            read = read_checkpoint(pages, late=True)
            trial.seen(time.monotonic(), self._progress.heartbeats, read)
        return bool(trial.started_over)

    def _hung(self, child: AttemptProcesses, verdict: Verdict) -> AttemptEnd | None:
        verdict = self._job_hang.judged(verdict)
        self._messages.hung(verdict, self._progress.step)
        if self._options.observe:
            return None
        context = self._context
        intent = None
        with contextlib.ExitStack() as recorded:
            # A full disk keeps no hang from being ended: that it is not recorded is said elsewhere.
            with contextlib.suppress(NotRecordedError):
                number, run = context.number, context.spec.run.id
                intent = self._services.journal.intend(
                    IntentKind.KILL, f"attempt {number}", run=run, attempt=number
                )
                recorded.enter_context(intent)
            pids = child.tree()
            found = hang_evidence(
                context,
                self._services,
                self._timing.evidence_within,
                verdict,
                pids=pids,
                since=self._began,
                known=self._known_stacks,
                heartbeats=self._progress.heartbeats,
                blame=self._job_hang.blame,
            )
            self._messages.blamed(found.blame, verdict.blame)
            if not self._job_hang.settled and not self._confirmed(child):
                if intent:
                    intent.end("withdrawn: the run moved")
                return None
            stopping = self._timing.stopping
            ended = end_tree(child, stopping, signal.SIGKILL, self._services, patience=1)
        raised = any(beat.raised for beat in self._progress.heartbeats)
        outcome = Outcome.AT_EXIT if verdict.over and not raised else Outcome.HUNG
        if ended.unkillable:
            outcome = Outcome.UNKILLABLE
        return self._end(child, outcome, ended.exit, found, pids)

    def _confirmed(self, child: AttemptProcesses) -> bool | None:
        """Check once more, right before the signal; a run that moved meanwhile is left alone.

        The stacks of what trains are read again. None where no snapshot could be read, as on a
        busy machine: the next tick asks again.
        """
        progress, since, hung = self._pulse.progress, self._pulse.waited_from, False
        self._known_stacks.python.forget(beat.pid for beat in self._progress.heartbeats)
        for _ in range(LAST_SNAPSHOTS):
            self._take_snapshot(child)
            hung = self._tick(child, alive=True).condition is RunState.HUNG
            if hung and is_read(self._pulse):
                return True
            if self._pulse.progress != progress:
                break
        else:
            if hung:
                return None
        self._pulse = withdrawn(self._pulse, time.monotonic() - since)
        self._messages.withdrawn()
        return False

    def _stopped(
        self, child: AttemptProcesses, stopping: Stopping, outcome: Outcome = Outcome.STOPPED
    ) -> AttemptEnd:
        ended = end_tree(child, stopping, signal.SIGTERM, self._services, patience=0)
        return self._end(child, outcome, ended.exit)

    def _end(
        self,
        child: AttemptProcesses,
        outcome: Outcome,
        exited: Exit | None,
        found: HangEvidence | None = None,
        pids: tuple[int, ...] = (),
    ) -> AttemptEnd:
        by_interrupt = exited is not None and exited.signal == signal.SIGINT
        stop_requests = self._services.stop_requests
        if child.interrupts.stopped_it(time.monotonic(), by_interrupt=by_interrupt):
            stop_requests.stop = stop_requests.stop or signal.SIGINT
        if stop_requests.stop is not None and outcome in (
            Outcome.BY_ITSELF,
            Outcome.HUNG,
            Outcome.AT_EXIT,
        ):
            outcome = Outcome.STOPPED  # whatever code it gave: nothing follows
        self._refusals.say()
        progress, pages, before = self._progress, self._context.pages, self._context.before
        start, read = self._context.checkpoint, read_checkpoint(pages) if pages else None
        if self._trial is not None and pages is not None:
            self._trial.ended(progress.heartbeats, read_checkpoint(pages, late=True))
            ended = outcome in (Outcome.BY_ITSELF, Outcome.HUNG, Outcome.AT_EXIT)
            outcome = Outcome.STARTED_OVER if self._trial.started_over and ended else outcome
        self._find_resumed(ended=True)
        saved = read_saved(pages) if pages else SavedFiles()
        applied = read_applied(pages) if pages else ()
        ineffective = {it.setting for it in applied if it.outcome is not SettingOutcome.APPLIED}
        crashed = outcome is Outcome.BY_ITSELF and not (exited and exited.code == 0)
        failed = crashed or outcome in (Outcome.HUNG, Outcome.REPLACED)
        return AttemptEnd(
            outcome=outcome,
            exit=exited,
            first_failure=self._live_processes.first_failure,
            seconds=time.monotonic() - self._began,
            progress_seconds=progress.seconds,
            first_step=progress.first_step,
            last_step=progress.step,
            total=self._total,
            base=progress.before,
            unsure=progress.unsure,
            checkpoint=(str(start.path), start.written) if start else None,
            start=before.key,
            read=f"{read.path} {read.written}" if read else "",
            read_checkpoint=read,
            own_step=own_step(progress, read, resumed=bool(before.key)),
            own_counts=progress.own_counts,
            saves=progress.saves,
            saved=saved,
            unsaved=saved.failed,
            heard=bool(progress.heartbeats),
            stepped=any(beat.step for beat in progress.heartbeats),
            not_finite=self._loss_since(ended=True),
            started_over=self._trial.started_over if self._trial else "",
            wrote_checkpoint=progress.wrote_checkpoint,
            ineffective=tuple(sorted(ineffective)),
            ranks=max([1, *(beat.world or 1 for beat in progress.heartbeats)]),
            found=found,
            learned=learn(
                msgspec.structs.replace(self._pulse, heartbeats=progress.heartbeats), failed=failed
            ),
            processes=pids or (child.pid,),
            began=self._began,
            snapshots=self._snapshots,
            members=self._members.members(self._snapshots),
            heartbeats=progress.heartbeats,
            oom_kills=oom_kills_since(self._groups),
            raised=read_raised(pages) if pages else (),
            applied=applied,
            loader=read_loader_facts(pages) if pages else None,
            batch_split=read_batch_split(pages) if pages else None,
            precision=read_precision(pages) if pages else "",
        )


def own_step(
    progress: AttemptProgress, read: CheckpointRead | None, *, resumed: bool
) -> int | None:
    """Return how far it came by the script's own count; None if nothing confirms it.

    ``read``: the checkpoint that the script found by itself, whose steps may not be the job's.
    """
    is_job = read is None or resumed
    return progress.step if progress.own_step is not None and is_job else None
