"""Carries out the runs of one command: begins or takes over each, and sees it to its end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine_at_start import Examination
from rocsteady.doctor.values import Finding, steps_in_order
from rocsteady.errors import RocsteadyError
from rocsteady.failures.remedy import load_remedies
from rocsteady.model import CPU, RunOutcome
from rocsteady.run.attempt.termination import OF_TORCHRUN, end_what_was_left, guard
from rocsteady.run.checkpoints.existing_checkpoints import Choice, choose
from rocsteady.run.checkpoints.resume import Origin
from rocsteady.run.checkpoints.script_facts import script_in
from rocsteady.run.context import RunSpec, Services
from rocsteady.run.engines.plain_command import start_command
from rocsteady.run.engines.tasks import HostTasks
from rocsteady.run.engines.torchrun import AgentLink
from rocsteady.run.job.job_file import user_configuration
from rocsteady.run.job.metrics import Metrics
from rocsteady.run.job.values import Job
from rocsteady.run.loop import Supervisor
from rocsteady.run.options import NEVER_RESUME, Followed, RunOptions
from rocsteady.run.stop_requests import StopRequests
from rocsteady.run.telling.announcer import Announcer, Screen
from rocsteady.run.telling.notifications import Notifier, channels
from rocsteady.run.telling.run_exports import RunExports
from rocsteady.store.account_records import keep, kept
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.redaction import shown_command
from rocsteady.store.values import Run, RunRecord
from rocsteady.system.child_end import DETACHED, INHERIT_TERMINAL

DOCTOR_WITHIN = 3.0  # seconds to wait for it; it takes 0.3


@dataclass(frozen=True, kw_only=True)
class RunLauncher:
    """Carries out the runs of one command: one, or one for each stage."""

    folder: Path
    options: RunOptions
    journal: Journal
    memory: Memory
    choice: Choice  # about checkpoints that were there before
    screen: Screen  # that writes what happens
    examination: Examination  # of this machine, for the command
    tasks: HostTasks | None = None  # that start a rank each; None: one command

    def chosen(self, job: Job) -> RunLauncher:
        """Ask what is to be asked before a new run, so that nothing is asked later."""
        if self.options.resumed_run is not None:
            return self
        _, _, choice = choose(job, self.folder, self.journal.runs(), self.choice)
        return with_fields(self, choice=with_fields(choice, ask=None))

    def carry_out(self, job: Job, name: str | None = None) -> tuple[int, bool]:
        """Carry out a run to its end, or go on with one that was left.

        Returns its exit code, and whether it is done: one that was stopped may give 0 too.
        """
        with closing(Announcer(screen=self.screen)) as announcer:
            end_what_was_left(self.journal.runs(), self.journal.here, announcer.say)
        origin, note = Origin(), ""
        if self.options.resumed_run is None:
            origin, note, _ = choose(job, self.folder, self.journal.runs(), self.choice)
        run, earlier = self._run(job, name)
        options = self.options
        records = Path(run.folder)
        if earlier is not None:
            followed = (options.follows_plan and kept(Followed, records)) or Followed()
            options = replace(options, stop=followed.stop, fallbacks=followed.fallbacks)
        elif options.fallbacks:
            keep(Followed(stop=options.stop, fallbacks=options.fallbacks), records)
        wanted = job.metrics or user_configuration().metrics or Metrics()
        exports = RunExports(self.journal, run.name, wanted, self.folder)
        supervisor = Supervisor(
            RunSpec(
                job=job, run=run, folder=self.folder, earlier=earlier, origin=origin, note=note
            ),
            options,
            self._services(job, run),
            observers=(exports,),
        )
        self.examination.keep(Path(run.folder))
        if self._link is not None:
            (Path(run.folder) / OF_TORCHRUN).touch()
        ours = guard(run.name, self.journal.here) if self._link is None else nullcontext()
        with ours:  # ranks of somebody's torchrun go on without us
            try:
                code = supervisor.carry_out()
            finally:
                with closing(Announcer(self.journal, run.id, screen=self.screen)) as announcer:
                    exports.close(announcer.say)
        if self._link is not None:
            self._link.end(code)
        return code, supervisor.outcome is RunOutcome.DONE

    def is_done(self, name: str) -> bool:
        return any(
            line.run.name == name and line.run.outcome is RunOutcome.DONE
            for line in self.journal.runs()
        )

    def done_before(self, job: Job) -> str:
        """Return the last run of a command without a job file if it is done, and still the same."""
        last = self.journal.last_run(job.command)
        if last is None or last.outcome is not RunOutcome.DONE or job.resume is not None:
            return ""
        script = script_in(job.command, self.folder)
        changed = script is not None and script.stat().st_mtime > (last.ended or 0.0)
        return "" if changed else last.name

    def ask_doctor(self, job: Job) -> None:
        """Say what stands against a new run on this machine; refuse one that it blocks."""
        options = self.options
        if options.resumed_run is not None or options.plan is not None or self._link is not None:
            return  # it has begun, the plan has judged, or others start it
        told = self.examination.within(DOCTOR_WITHIN)
        if told is None:
            return
        blocks = told.diagnosis.having(Severity.BLOCKS)
        decided = options.anyway or options.observe or options.start_with
        if blocks and told.wants_gpu and not decided and not self._is_known_to_work(job):
            raise RocsteadyError(_refusal(blocks, job))
        if found := (*blocks, *told.diagnosis.having(Severity.RISKS)):
            rules = ", ".join(each.rule for each in found)
            with closing(Announcer(screen=self.screen)) as announcer:
                announcer.say(f"the doctor warns of {rules}. To see why: rocsteady doctor")

    def _is_known_to_work(self, job: Job) -> bool:
        """Whether a command asks for the CPU, or made steps here before."""
        lines = (line for line in self.journal.runs() if line.run.command == job.command)
        on_cpu = any(word == CPU or word.endswith(f"={CPU}") for word in job.command)
        return on_cpu or any(line.step for line in lines)

    @cached_property
    def _link(self) -> AgentLink | None:
        """The connection to a torchrun whose ranks are watched; None: a run of our own."""
        options = self.options
        if options.ranks is None:
            return None
        return AgentLink(options.ranks, os.environ, several_hosts=options.several_hosts)

    def _services(self, job: Job, run: Run) -> Services:
        link, options = self._link, self.options
        engine = link.start if link else self.tasks.start if self.tasks else start_command
        return Services(
            journal=self.journal,
            memory=self.memory,
            announcer=Announcer(self.journal, run.id, screen=self.screen),
            notifier=Notifier(channels(job, self.folder)),
            terminal=DETACHED if options.without_terminal else INHERIT_TERMINAL,
            engine=engine,
            stop_requests=StopRequests(of_launcher=options.several_hosts and link is None),
            hosts=link if link is not None and link.several_hosts else None,
        )

    def _run(self, job: Job, name: str | None) -> tuple[Run, RunRecord | None]:
        """Begin a run, or take over one that was left."""
        journal, resumed = self.journal, self.options.resumed_run
        others = self.options.ranks is not None or self.options.several_hosts
        exclusive = self.options.resume != NEVER_RESUME and not others
        if resumed is None:
            name = name or (_free_name(job.name, journal) if job.name else None)
            run = journal.begin_run(
                job.command, job=job, strategy=self.options.strategy, name=name, alone=exclusive
            )
            return run, None
        line = next(line for line in journal.runs() if line.run.name == resumed)
        if line.alive:
            raise RocsteadyError(
                f"{resumed} is still running. To stop it: rocsteady stop {resumed}"
            )
        earlier = journal.story(resumed)
        return journal.take_over(resumed, alone=exclusive), earlier


def load_for_failures() -> None:
    """Read what naming the first failure takes, so that the run is restarted sooner."""
    load_failures()
    load_remedies()


def _refusal(blocks: Sequence[Finding], job: Job) -> str:
    steps = steps_in_order(blocks) or [each.fix.text for each in blocks]
    lines = [f"{each.summary} ({each.rule})" for each in blocks]
    lines += ["Do this, in order:", *(f"  {step}" for step in steps)]
    anyway = f"To start anyway: rocsteady run --anyway -- {shown_command(job.command)}"
    return "\n".join(("not started, as training is blocked here.", *lines, anyway))


def _free_name(wanted: str, journal: Journal) -> str:
    """Return the name that a job file gives its runs, with a number from the second on."""
    taken = {line.run.name for line in journal.runs()}
    number = 2
    name = wanted
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name
