"""One attempt: start it, watch it, collect the evidence, end it if it is hung; say how it ended."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable

import msgspec

from rocsteady.errors import NotRecordedError
from rocsteady.hangs.exceptions import read_raised
from rocsteady.hangs.gpu_stall_signs import GpuSigns
from rocsteady.hangs.heartbeat_pages import (
    read_applied,
    read_batch_split,
    read_checkpoint,
    read_loader_facts,
    read_notes,
    read_pages,
    read_precision,
    read_resumes,
)
from rocsteady.hangs.judgment import Pulse, begin, judge, learn, occupied, waits_for_gpu, withdrawn
from rocsteady.hangs.members import MemberCollector
from rocsteady.hangs.memory import GroupMemory, oom_kills_since, read_groups
from rocsteady.hangs.native_stacks import NativeStacks
from rocsteady.hangs.output import OutputCounter
from rocsteady.hangs.snapshot import take_snapshot
from rocsteady.hangs.values import Snapshot, Tick
from rocsteady.hangs.verdict import Verdict
from rocsteady.model import IntentKind, Outcome, RunState
from rocsteady.run.attempt_context import AttemptContext, AttemptTools
from rocsteady.run.attempt_end import AttemptEnd, HangEvidence
from rocsteady.run.engines import plain
from rocsteady.run.engines.processes import AttemptProcesses
from rocsteady.run.gauges import Gauges
from rocsteady.run.hang_evidence import hang_evidence
from rocsteady.run.injection_check import Unseen
from rocsteady.run.job.resume import Launch
from rocsteady.run.job_hang import JobHang
from rocsteady.run.leftovers import named
from rocsteady.run.live_processes import Living
from rocsteady.run.log_end import sign
from rocsteady.run.progress import AttemptProgress
from rocsteady.run.refusals import Refusals
from rocsteady.run.save_request import ask_to_save
from rocsteady.run.signal_response import Reaction
from rocsteady.run.stopwatch import boot_clock
from rocsteady.run.strategy_environment import environment
from rocsteady.run.suspension import Suspension
from rocsteady.run.termination import end_tree, interrupted_twice
from rocsteady.run.verdict_messages import Teller
from rocsteady.run.watch_actions import RequestedActions
from rocsteady.store.values import Sample
from rocsteady.system.child_end import Exit, Stopping, TerminalUse

LAST_SNAPSHOTS = 3  # before a signal, until one confirms the verdict
MOST_SNAPSHOTS = 40  # kept; older ones say nothing more
ASK_JOURNAL_EVERY = 30.0  # seconds, for a kill that it would not write down


class Attempt:
    """Watches one launch from its start to its end."""

    def __init__(
        self,
        setting: AttemptContext,
        means: AttemptTools,
        sampled: Callable[[Sample], None] | None = None,
    ) -> None:
        self._setting = setting
        self._means = means
        self._sampled = sampled
        self._settings = means.settings
        self._teller = Teller(means.announcer, setting.records.name, observe=means.settings.observe)
        self._began = time.monotonic()
        self._unseen = Unseen(
            means.announcer, pages=setting.injection is not None, began=self._began
        )
        apart = means.hosts is not None
        self._pulse: Pulse = begin(self._began, boot_clock(), setting.learned, apart=apart)
        self._counter = OutputCounter(setting.pattern)
        self._gauges = Gauges(self._counter.take_loss)
        self._snapshots: tuple[Snapshot, ...] = ()
        self._native_stacks = NativeStacks()
        self._reached = AttemptProgress(
            lambda: self._counter.progress,
            setting.total,
            before=setting.before,
            resumed=setting.resumed,
            marks=means.marks,
            by_log=bool(setting.pattern),
        )
        self._living = Living()
        self._suspension = Suspension(means.settings, means.announcer)
        self._unwatched = False  # because of a fault of ours
        self._resumes = False  # the script has told that it does
        self._kill_after = 0.0  # when the journal is asked again
        self._groups: tuple[GroupMemory, ...] = ()  # that the command is in, as it starts
        self._members = MemberCollector(self._began)
        self._gpu_signs = GpuSigns(self._began)
        self._refusals = Refusals(means.announcer, setting, self._began)
        self._job_hang = JobHang(means.hosts, means.announcer, means.settings.patience)
        self._asked = RequestedActions(setting, means, self._native_stacks)

    def start(self, launch: Launch, terminal: TerminalUse) -> AttemptProcesses:
        """Start the command. Raises OSError if it cannot be started."""
        self._unseen.starts(launch.command)
        chosen = plain.chosen_rendezvous(launch.command)
        if chosen not in ("", "rocsteady") and self._setting.number == 1:
            self._means.announcer.say(f"torchrun uses the rendezvous that you chose: {chosen}.")
        self._means.announcer.flush()
        return self._means.engine(
            launch,
            environment=self._environment(),
            folder=self._setting.folder,
            run_id=self._setting.run_id,
            log=self._setting.log,
            on_output=lambda chunk: self._counter.feed(chunk, time.monotonic()),
            terminal=terminal,
            log_rules=self._setting.log_rules,
        )

    def watch(self, child: AttemptProcesses) -> AttemptEnd:
        """Stay with it to its end."""
        self._means.announcer.through = child.tell
        self._means.wishes.pass_on = child.pass_on
        self._groups = read_groups((child.pid,))
        try:
            end = self._watch(child)
        finally:
            self._means.wishes.pass_on = None
            self._means.announcer.through = None
            self._asked.end_pause(child)
            child.close()
            self._means.announcer.mid_line = child.mid_line
        sign(self._setting.log, end)
        return end

    def notes(self) -> dict[int, str]:
        """Return why processes have no page, as they said it."""
        injection = self._setting.injection
        return read_notes(injection.pages) if injection else {}

    def _environment(self) -> dict[str, str]:
        injection, existing = self._setting.injection, dict(self._setting.environment)
        added, unset = environment(self._setting.strategy, existing)
        existing = {name: value for name, value in existing.items() if name not in unset} | added
        existing |= self._setting.saving
        if injection is None:
            return existing
        added = injection.environment(existing, run_id=self._setting.run_id, supervisor=os.getpid())
        return {**existing, **added}

    def _watch(self, child: AttemptProcesses) -> AttemptEnd:
        """Tick until the command ends, the user wants it to, or it is hung."""
        wishes = self._means.wishes
        while True:
            exited = child.wait(self._settings.tick.total_seconds())
            if exited is not None:
                self._counter.end()
                self._carefully(child, alive=False)
                if left := named(child.left_running()):
                    self._means.announcer.say(
                        f"the command ended; terminating the processes it left: {left}."
                    )
                outcome = Outcome.REPLACED if exited.replaced else Outcome.BY_ITSELF
                return self._end(child, outcome, exited)
            if wishes.terminal_lost:
                wishes.terminal_lost = False
                child.detach_terminal()
            if wishes.suspend:
                wishes.suspend = False
                child.suspend()
            if wishes.stop is not None:
                self._asked.end_pause(child)  # so that it can save
                return self._stopped(child, self._settings.stopping)
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
            self._means.announcer.bug("the run continues", error)
            self._asked.end_pause(child)
        return self._asked.paused

    def _interrupted_twice(self, child: AttemptProcesses) -> AttemptEnd:
        self._means.announcer.say(
            "the script ignored two interrupts; terminating it. Press ^C again to kill it at once."
        )
        stopping = self._settings.stopping
        quick = msgspec.structs.replace(stopping, save_wait=stopping.terminate_wait)
        return self._stopped(child, quick)

    def _carefully(self, child: AttemptProcesses, *, alive: bool) -> AttemptEnd | None:
        """Look and act. A fault of ours costs the watching, never the run."""
        if self._unwatched:
            return None
        try:
            verdict = self._tick(child, alive=alive)
            return self._act(child, verdict) if alive else None
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
            self._unwatched = True
            self._means.announcer.bug("the run continues unwatched", error)
            return None

    def _tick(self, child: AttemptProcesses, *, alive: bool) -> Verdict:
        now = time.monotonic()
        tree = functools.cache(child.tree)  # listing all processes is expensive: once per tick
        if self._setting.injection is not None:
            known = [beat.pid for beat in self._reached.heartbeats if beat.step]
            self._reached.heartbeats = read_pages(self._setting.injection.pages, known)
            if not self._resumes and (told := read_resumes(self._setting.injection.pages)):
                self._resumes = True
                self._means.resumes(told)
        tick = Tick(
            at=now,
            boot=boot_clock(),
            heartbeats=self._job_hang.seen(self._living.among(self._reached.heartbeats)),
            output=self._counter.output,
            alive=alive,
        )
        before = self._pulse.progress
        self._pulse, verdict = judge(
            self._pulse, tick, self._snapshots, self._settings.patience, self._means.waits
        )
        if self._pulse.progress != before:
            self._snapshots = ()
        sample = self._reached.seen(now, verdict, self._gauges.read(now, tree))
        self._means.journal.progressed(self._setting.run, self._setting.number, sample)
        self._hand_on(sample)
        if alive and verdict.examine:
            self._examine(child, verdict)
        if alive:
            self._members.poll(tree, now)
            self._refusals.poll(now)
            self._unseen.poll(tree, now, beats=bool(self._reached.heartbeats))
            self._teller.tell(verdict, inspected=bool(self._snapshots))
            self._teller.loss(self._reached.heartbeats, self._setting.before)
            self._teller.saves(self._reached.heartbeats)
        return verdict

    def _hand_on(self, sample: Sample) -> None:
        if self._sampled is None:
            return
        try:
            self._sampled(sample)
        except Exception as error:  # noqa: BLE001 - it costs the forecast, never the watching
            self._sampled = None
            self._means.announcer.bug("no more forecasts", error)

    def _examine(self, child: AttemptProcesses, verdict: Verdict) -> None:
        first = not self._snapshots and not verdict.over
        if first and self._setting.injection is not None and not self._settings.observe:
            ask_to_save(self._setting.injection.pages)
        self._take_snapshot(child)

    def _take_snapshot(self, child: AttemptProcesses) -> None:
        """Look closer; at what the GPU says too, if that is waited for."""
        pids, within = child.tree(), self._settings.snapshot_within
        taken = take_snapshot(pids, stacks=True, within=within, known=self._native_stacks)
        if waits_for_gpu(self._pulse):
            signs = self._gpu_signs.read(pids, self._members.members(), within)
            taken = msgspec.structs.replace(taken, gpu_signs=signs)
        self._snapshots = (*self._snapshots, taken)[-MOST_SNAPSHOTS:]

    def _act(self, child: AttemptProcesses, verdict: Verdict) -> AttemptEnd | None:
        if verdict.condition is RunState.STOPPED:
            self._suspension.seen(child, self._snapshots[-1] if self._snapshots else None)
        else:
            self._suspension.over()
        hangs = self._job_hang.is_proven(
            verdict,
            self._living.among(self._reached.heartbeats),
            lambda: self._confirmed(child),
        )
        return self._hung(child, verdict) if hangs else None

    def _hung(self, child: AttemptProcesses, verdict: Verdict) -> AttemptEnd | None:
        verdict = self._job_hang.judged(verdict)
        if self._settings.observe:
            self._teller.hung(verdict, "Only observing: rocsteady does not stop the run.")
            return None
        setting, announcer = self._setting, self._means.announcer
        self._teller.hung(verdict, f"Incident {setting.incident}.")
        if time.monotonic() < self._kill_after:
            return None
        number, journal = setting.number, self._means.journal
        try:
            intent = journal.intend(
                IntentKind.KILL, f"attempt {number}", run=setting.run, attempt=number
            )
        except NotRecordedError as error:
            self._kill_after = time.monotonic() + ASK_JOURNAL_EVERY
            announcer.say(f"not stopped yet: the journal is not writable: {error}. Retrying.")
            return None
        with intent:
            pids = child.tree()
            found = hang_evidence(
                setting,
                self._means,
                verdict,
                pids=pids,
                since=self._began,
                known=self._native_stacks,
                heartbeats=self._reached.heartbeats,
                blame=self._job_hang.blame,
            )
            self._teller.blamed(found.blame, verdict.blame)
            if not self._job_hang.settled and not self._confirmed(child):
                intent.end("withdrawn: the run moved")
                return None
            first = signal.SIGTERM if verdict.over else signal.SIGINT
            futile = self._reaction(child, verdict)
            stopping = self._settings.stopping
            ended = end_tree(child, stopping, first, self._means, patience=1, futile=futile)
        raised = any(beat.raised for beat in self._reached.heartbeats)
        outcome = Outcome.AT_EXIT if verdict.over and not raised else Outcome.HUNG
        if ended.unkillable:
            outcome = Outcome.UNKILLABLE
        return self._end(child, outcome, ended.exit, found, pids)

    def _confirmed(self, child: AttemptProcesses) -> bool:
        """Check once more, right before the signal; a run that moved meanwhile is left alone."""
        progress, since = self._pulse.progress, self._pulse.waited_from
        for _ in range(LAST_SNAPSHOTS):  # one that fails on a busy machine refutes nothing
            self._take_snapshot(child)
            self._pulse = occupied(self._pulse, time.monotonic())
            if self._tick(child, alive=True).condition is RunState.HUNG:
                return True
            if self._pulse.progress != progress:
                break
        self._pulse = withdrawn(self._pulse, time.monotonic() - since)
        self._teller.withdrawn()
        return False

    def _reaction(self, child: AttemptProcesses, verdict: Verdict) -> Callable[[], bool] | None:
        """Return how to tell that nobody reacts to a signal, where a hang is proven."""
        if verdict.waits is None or not verdict.waits.closed or not self._snapshots:
            return None
        return Reaction(child.tree, verdict.waits, self._snapshots[-1]).none

    def _stopped(self, child: AttemptProcesses, stopping: Stopping) -> AttemptEnd:
        ended = end_tree(child, stopping, signal.SIGTERM, self._means, patience=0)
        return self._end(child, Outcome.STOPPED, ended.exit)

    def _end(
        self,
        child: AttemptProcesses,
        outcome: Outcome,
        exited: Exit | None,
        found: HangEvidence | None = None,
        pids: tuple[int, ...] = (),
    ) -> AttemptEnd:
        by_interrupt = exited is not None and exited.signal == signal.SIGINT
        wishes = self._means.wishes
        if child.interrupts.stopped_it(time.monotonic(), by_interrupt=by_interrupt):
            wishes.stop = wishes.stop or signal.SIGINT
        if wishes.stop is not None and outcome in (
            Outcome.BY_ITSELF,
            Outcome.HUNG,
            Outcome.AT_EXIT,
        ):
            outcome = Outcome.STOPPED  # whatever code it gave: nothing follows
        self._refusals.say()
        reached = self._reached
        pages = self._setting.injection.pages if self._setting.injection else None
        return AttemptEnd(
            outcome=outcome,
            exit=exited,
            seconds=time.monotonic() - self._began,
            progress_seconds=reached.seconds,
            first_step=reached.first_step,
            last_step=reached.step,
            confirmed=reached.own_step is not None,
            own_counts=reached.own_counts,
            wrote_checkpoint=reached.wrote_checkpoint,
            read=read_checkpoint(pages) if pages else None,
            found=found,
            learned=learn(msgspec.structs.replace(self._pulse, heartbeats=reached.heartbeats)),
            processes=pids or (child.pid,),
            began=self._began,
            snapshots=self._snapshots,
            members=self._members.members(self._snapshots),
            heartbeats=reached.heartbeats,
            oom_kills=oom_kills_since(self._groups),
            raised=read_raised(pages) if pages else (),
            applied=read_applied(pages) if pages else (),
            loader=read_loader_facts(pages) if pages else None,
            batch_split=read_batch_split(pages) if pages else None,
            precision=read_precision(pages) if pages else "",
        )
