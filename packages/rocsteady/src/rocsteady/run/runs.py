"""Carries out runs that have their options in common."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import replace as replace_field
from pathlib import Path

from msgspec.structs import replace

from rocsteady.errors import RocsteadyError
from rocsteady.model import RunOutcome
from rocsteady.plan.saved_plan import keep_options, kept_options
from rocsteady.run.announcer import Announcer
from rocsteady.run.attempt_settings import Settings
from rocsteady.run.engines import elastic, plain
from rocsteady.run.engines.elastic import AgentLink
from rocsteady.run.existing_checkpoints import Choice, choose
from rocsteady.run.job.resume import Origin
from rocsteady.run.job.values import Job
from rocsteady.run.leftovers import OF_TORCHRUN, end_what_was_left, guard
from rocsteady.run.machine_at_start import record_machine
from rocsteady.run.notifications import Notifier, channels, notify_sources
from rocsteady.run.run_exports import exports_of
from rocsteady.run.run_spec import RunSpec
from rocsteady.run.strategy_history import RunWishes
from rocsteady.run.supervision import SupervisorFactory, Surroundings
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.run_trust import remember_run
from rocsteady.store.values import Run, RunStory
from rocsteady.system.child_end import TerminalUse


@dataclass(frozen=True, kw_only=True)
class RunLauncher:
    """What the runs of one command have in common."""

    folder: Path
    settings: Settings
    wanted: RunWishes
    journal: Journal
    memory: Memory
    terminal: TerminalUse
    choice: Choice
    alone: bool = True  # refuse the same job twice at once
    link: AgentLink | None = None  # to a torchrun whose ranks are watched; None: a run of our own

    def chosen(self, job: Job, resume: str | None) -> RunLauncher:
        """Ask what is to be asked before a new run, so that nothing is asked later."""
        if resume is not None:
            return self
        _, _, choice = choose(job, self.folder, self.journal.runs(), self.choice)
        return replace_field(self, choice=replace_field(choice, ask=None))

    def carry_out(
        self, job: Job, *, name: str | None = None, resume: str | None = None
    ) -> tuple[int, bool]:
        """Carry out a run to its end, or go on with one that was left.

        Returns its exit code, and whether it is done: one that was stopped may give 0 too.
        """
        notifier = Notifier(channels(notify_sources(job, self.folder)))
        announcer = Announcer()
        end_what_was_left(self.journal.runs(), self.journal.here, announcer.say)
        announcer.close()
        origin, note = Origin(), ""
        if resume is None:
            origin, note, _ = choose(job, self.folder, self.journal.runs(), self.choice)
        run, earlier = self._run(job, name=name, resume=resume)
        if earlier is None:
            remember_run(run, self.journal.place, self.memory)
        wanted = self.wanted
        if earlier is not None:
            wanted = replace(wanted, options=kept_options(Path(run.folder)))
        elif wanted.options:
            keep_options(wanted.options, Path(run.folder))
        spec = RunSpec(
            job=job, run=run, folder=self.folder, earlier=earlier, origin=origin, note=note
        )
        factory = SupervisorFactory(folder=self.folder, journal=self.journal, memory=self.memory)
        started = plain.start if self.link is None else elastic.engine(self.link)
        surroundings = Surroundings(
            terminal=self.terminal,
            notices=notifier,
            engine=started,
            hosts=self.link if self.link is not None and self.link.several_hosts else None,
        )
        exports = exports_of(job, run, self.journal, self.folder)
        supervisor = factory.supervisor(
            spec,
            wanted,
            self.settings,
            learns=True,
            surroundings=surroundings,
            observers=(exports,),
        )
        record_machine(Path(run.folder), job.command)
        if self.link is not None:
            (Path(run.folder) / OF_TORCHRUN).touch()
        ours = guard(run.name, self.journal.here) if self.link is None else nullcontext()
        with ours:  # ranks of somebody's torchrun go on without us
            try:
                code = supervisor.carry_out()
            finally:
                closing = Announcer(self.journal, run.id)
                exports.close(closing.say)
                closing.close()
        if self.link is not None:
            self.link.end(code)
        return code, supervisor.outcome is RunOutcome.DONE

    def is_done(self, name: str) -> bool:
        """Tell whether a run is done."""
        return any(
            line.run.name == name and line.run.outcome is RunOutcome.DONE
            for line in self.journal.runs()
        )

    def _run(
        self, job: Job, *, name: str | None, resume: str | None
    ) -> tuple[Run, RunStory | None]:
        """Begin a run, or take over one that was left."""
        journal = self.journal
        if resume is None:
            name = name or (_free_name(job.name, journal) if job.name else None)
            strategy = self.wanted.strategy
            run = journal.begin_run(
                job.command, job=job, strategy=strategy, name=name, alone=self.alone
            )
            return run, None
        line = next(line for line in journal.runs() if line.run.name == resume)
        if line.alive:
            raise RocsteadyError(f"{resume} is still running. To stop it: rocsteady stop {resume}")
        earlier = journal.story(resume)
        return journal.take_over(resume, alone=self.alone), earlier


def _free_name(wanted: str, journal: Journal) -> str:
    """Give each run of a job file that names them a number, from the second on."""
    taken = {line.run.name for line in journal.runs()}
    number = 2
    name = wanted
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name
