"""The strategies of a run: which one is in force, what was tried, and what may come next."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path

import msgspec

from rocsteady.doctor.facts import VisibleGpus, visible_to_a_run
from rocsteady.doctor.knowledge.failures import Component, FailureKnowledge, load_failures
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine, examined, software_of
from rocsteady.errors import RocsteadyError
from rocsteady.failures.classify import Classifier
from rocsteady.failures.history import BROUGHT_ABOUT, Reach, made_difference
from rocsteady.failures.ladder import RemedyChoice
from rocsteady.failures.probe_evidence import supported
from rocsteady.failures.remedy import RETRY, load_remedies, requested_strategy
from rocsteady.failures.situation import FailedAttempt, Refused, Situation
from rocsteady.failures.symptoms import Symptoms
from rocsteady.hangs.heartbeat_pages import BatchSplit, SettingOutcome
from rocsteady.hangs.looking.kernel_log import read_kernel_log
from rocsteady.model import Certainty, Failure, FailureKind, Fingerprint, Outcome, Strategy
from rocsteady.run.attempt.attempt_end import AttemptEnd, is_failure
from rocsteady.run.attempt.progress import ProgressCounts
from rocsteady.run.attempt.symptoms import KERNEL_WITHIN
from rocsteady.run.context import Services
from rocsteady.run.options import Fallback, RunOptions
from rocsteady.run.recovery.recovery import is_as_deadly, propose
from rocsteady.store.forecast import fell_after
from rocsteady.store.identity import script_fingerprint
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import AttemptRecord, Deadly, Helped, NamedFailure, Run, RunRecord


class StrategyHistory:
    """The strategy of a run, and what follows when it fails."""

    def __init__(  # noqa: PLR0913 - all are keyword arguments
        self,
        options: RunOptions,
        *,
        script: str,
        here: str,  # the machine, as the journal names it
        memory: Memory | None,
        knowledge: Knowledge,
        machine: Callable[[], Machine],  # examined when it is needed
        variables: dict[str, str],
    ) -> None:
        self.strategy = options.strategy
        self.fallbacks = options.fallbacks  # that are left, best first
        self.remedy = ""  # that led to the strategy; "" for the first
        self.progressed = False  # with the last attempt
        self._changed = False  # by that remedy: the same again can be had without asking
        self._options, self._script, self._here, self._memory = options, script, here, memory
        self._knowledge = knowledge
        self._machine = machine
        self._variables = variables
        self._tried: list[FailedAttempt] = []
        self._before = 0  # how many of these were on options that were given up
        self._answered = ""  # the kind of failure that the remedy is for
        self._furthest = ProgressCounts()
        self._reached: list[Reach] = []  # by each attempt
        self._starts: set[str] = set()  # checkpoints that attempts began with
        self._split: BatchSplit | None = None  # that was seen last
        crashes = memory.deadly(here, script) if memory else ()
        self._deadly = [entry.strategy for entry in crashes]

    def resume(self, story: RunRecord) -> None:
        """Take up the strategies of a run that was left."""
        if story.attempts:
            self.strategy = story.attempts[-1].strategy
        self._reached = [
            Reach.between(each.strategy, each.first_step, each.last_step) for each in story.attempts
        ]
        fell = fell_after(story.decisions)
        strategies = {attempt.number: attempt for attempt in story.attempts}
        for row in story.failures:
            attempt = strategies.get(row.attempt)
            if attempt is not None:
                self._remember(attempt, row)
                self._before = len(self._tried) if row.attempt <= fell else self._before
        self._leave_out_taken(story)

    def start(self) -> RemedyChoice | None:
        """Choose the first strategy. Returns the choice if the one at hand crashed the machine."""
        if self._options.start_with:
            self._start_with()
        if self._options.retry_crashed or self.strategy not in self._deadly:
            return None
        failure = self._went_down()
        self._tried.append(FailedAttempt(strategy=self.strategy, failure=failure.fingerprint))
        situation = self.situation(failure, None, can_resume=True, checkpoints=0)
        blamed = self.is_option_to_blame(failure)
        choice = propose(situation, self.open_fallbacks(), blamed=blamed)
        self.take(choice, failure.kind)
        return choice

    def offers(self) -> tuple[Helped, ...]:
        """Return what helped this script here before, and is not in force."""
        if self._memory is None:
            return ()
        return tuple(
            helped
            for helped in self._memory.what_helped(self._here, self._script)
            if helped.remedy not in self._options.start_with and helped.remedy in load_remedies()
        )

    def took_down(self, run: Run, attempt: AttemptRecord, folder: Path) -> None:
        """Remember that an attempt took the machine down, at this script or at another one."""
        strategy = attempt.strategy
        script = script_fingerprint(run.command, str(folder))
        if script == self._script and strategy not in self._deadly:
            self._deadly.append(strategy)
        if self._memory is not None:
            self._memory.killed(
                Deadly(
                    machine=self._here,
                    script=script,
                    strategy=strategy,
                    command=" ".join(run.command)[:200],
                    at=attempt.started,
                )
            )

    def name(self, symptoms: Symptoms) -> Failure:
        """Name why an attempt ended."""
        return Classifier(self._failures).name(symptoms)

    def is_of_gpu(self, failure: Failure) -> bool:
        """Return whether a failure is one of the device."""
        return self._failures.kinds[failure.kind].component is Component.DEVICE

    def clears(self, failure: Failure) -> bool:
        """Return whether a failure can clear up by itself."""
        return self._failures.kinds[failure.kind].clears

    def gpu_trouble(self, since: float) -> str:
        """Return what the kernel has said of a GPU since a moment; "" if nothing."""
        lines = read_kernel_log(since, within=KERNEL_WITHIN).lines
        failure = self.name(Symptoms(kernel=lines)) if lines else None
        if failure is None or not self.is_of_gpu(failure):
            return ""
        return failure.seen[0] if failure.seen else failure.title

    @cached_property
    def _failures(self) -> FailureKnowledge:
        """What is known of failures: most runs never need it."""
        return load_failures()

    def failed(self, failure: Failure, end: AttemptEnd, run: Run) -> None:
        """Take a failure into account."""
        progressed = self.ended(end, run)
        self._tried.append(
            FailedAttempt(
                strategy=self.strategy,
                failure=failure.fingerprint,
                remedy=self.remedy,
                progressed=progressed,
                clears=self.clears(failure),
                steps=end.last_step or 0,
            )
        )

    def ended(self, end: AttemptEnd, run: Run) -> bool:
        """Return whether an attempt came further than all before it; what helped it is remembered.

        The script's own count tells, or a checkpoint that none before it began with, if it saved
        another: steps that were made over again are none.
        """
        further = self._furthest.passes(end.own_step, end.own_counts)
        if end.start and end.saves and not end.started_over:
            further = further or end.start not in self._starts
        self._starts.add(end.start)
        if end.heartbeats and not any(beat.step for beat in end.heartbeats):
            further = False  # it only read what others have saved
        progressed = further or (end.outcome is Outcome.BY_ITSELF and not is_failure(end))
        self._reached.append(Reach.between(self.strategy, end.before, end.last_step))
        helps = progressed and self._changed and made_difference(self._reached)
        if helps and self._memory is not None:
            self._memory.helped(
                Helped(
                    machine=self._here,
                    script=self._script,
                    failure=self._answered,
                    remedy=self.remedy,
                    run=run.name,
                    at=time.time(),
                )
            )
        self.progressed = progressed
        return progressed

    def _split_in_force(self) -> BatchSplit | None:
        """Return how the attempt that failed trained a batch; if it made no step, by an earlier."""
        split, asked = self._split, self.strategy.micro_batch
        if split is None or asked is None:
            return split
        return msgspec.structs.replace(split, micro_batch=min(split.micro_batch, asked))

    def situation(
        self, failure: Failure, end: AttemptEnd | None, *, can_resume: bool, checkpoints: int
    ) -> Situation:
        """Return all that the ladder looks at, after a failure that was taken into account."""
        kind, seen = self._failures.kinds[failure.kind], self._seen()
        self._split = (end.batch_split if end else None) or self._split
        return Situation(
            failure=failure,
            nature=kind.nature,
            clears=kind.clears,
            component=kind.component,
            person=kind.fix,
            strategy=self.strategy,
            tried=tuple(self._tried[self._before :]),
            machine=self._machine(),
            variables=self._variables,
            gpus=seen.gpus,
            gfx=seen.gfx,
            arches=seen.arches,
            loader=end.loader if end else None,
            batch_split=self._split_in_force(),
            precision=end.precision if end else "",
            can_resume=can_resume,
            checkpoints=checkpoints,
            ranks=max([1, *(beat.world or 1 for beat in (end.heartbeats if end else ()))]),
            ineffective=no_effect(end) if end else (),
            crashed_machine=self._never(),
            helped_before=(*(helped.remedy for helped in self.offers()), *self._probed()),
            allow=(RETRY,) if self._options.no_remedies else self._options.allow,
            deny=self._options.deny,
            also=self._options.also,
        )

    def _probed(self) -> tuple[str, ...]:
        """Return the remedies that probes of this machine speak for."""
        if self._memory is None:
            return ()
        return supported(self._memory.observations(self._here), software_of(self._machine()))

    def _never(self) -> tuple[Strategy, ...]:
        """Return what crashed the machine, here or on an option that was given up."""
        given_up = self._tried[: self._before]
        return (
            *self._deadly,
            *(e.strategy for e in given_up if e.failure.kind == FailureKind.MACHINE_WENT_DOWN),
        )

    def is_option_to_blame(self, failure: Failure) -> bool:
        """Return whether an option that was fallen back to has brought the failure about itself."""
        first = 0 < self._before == len(self._tried) - 1
        return first and failure.kind in BROUGHT_ABOUT and not self._tried[-1].progressed

    @property
    def in_force(self) -> tuple[str, ...]:
        """The remedies that --with would need for the strategy in force; (): none, or no help."""
        if self.strategy == self._options.strategy or self._options.start_with:
            return ()
        if not made_difference(self._reached):
            return ()
        taken = [*dict.fromkeys(entry.remedy for entry in self._tried), self.remedy]
        names = [name for name in taken if name in load_remedies() and name != RETRY]
        for first in reversed(range(len(names))):
            chosen = tuple(dict.fromkeys(names[first:]))
            gpus = self._seen().gpus
            if requested_strategy(chosen, self._machine(), self._variables, gpus=gpus) == (
                self.strategy
            ):
                return chosen
        return ()

    def open_fallbacks(self) -> tuple[Fallback, ...]:
        """Return the options of the plan that may be fallen back to."""
        return tuple(option for option in self.fallbacks if self._may_fall_to(option.strategy))

    def _leave_out_taken(self, story: RunRecord) -> None:
        """Leave out the options that a run has taken; go on with the last if it was not tried."""
        taken = {each.fallback: each.attempt for each in story.decisions if each.fallback}
        last = story.attempts[-1].number if story.attempts else None
        waiting = [each.strategy for each in self.fallbacks if taken.get(each.number, 0) == last]
        self.fallbacks = tuple(each for each in self.fallbacks if each.number not in taken)
        self.strategy = waiting[-1] if waiting else self.strategy

    def _may_fall_to(self, strategy: Strategy) -> bool:
        """Return whether it was not tried and is not what crashed the machine."""
        if any(entry.strategy == strategy for entry in self._tried):
            return False
        never = [msgspec.structs.replace(one, checkpoints_back=0) for one in self._never()]
        deadly = strategy in never or any(is_as_deadly(strategy, one) for one in never)
        return self._options.retry_crashed or not deadly

    def take(self, step: RemedyChoice, kind: str) -> None:
        """Go on with what was proposed after a failure."""
        if step.strategy is None:
            return
        fell = bool(step.fallback)
        self.fallbacks = tuple(each for each in self.fallbacks if each.number != step.fallback)
        self._before = len(self._tried) if fell else self._before
        self._changed = step.strategy != self.strategy and not fell
        self.strategy, self.remedy = step.strategy, "" if fell else step.remedy
        self._answered = kind

    @property
    def tried(self) -> tuple[FailedAttempt, ...]:
        """All attempts that failed, oldest first."""
        return tuple(self._tried)

    @property
    def given_up(self) -> int:
        """How many of them were on options that were given up."""
        return self._before

    def adopt(
        self, strategy: Strategy, remedy: str, tried: tuple[FailedAttempt, ...], given_up: int
    ) -> None:
        """Go on with what another host of the job has decided, and with what it has tried."""
        self._changed = strategy != self.strategy
        self.strategy, self.remedy = strategy, remedy
        self._tried, self._before = list(tried), given_up
        self._answered = tried[-1].failure.kind if tried else ""

    def _remember(self, attempt: AttemptRecord, row: NamedFailure) -> None:
        steps = attempt.last_step or 0
        self._tried.append(
            FailedAttempt(
                strategy=attempt.strategy,
                failure=row.failure.fingerprint,
                progressed=self._furthest.passes(steps, {}),
                clears=self.clears(row.failure),
                steps=steps,
            )
        )

    def _start_with(self) -> None:
        seen = self._seen()
        found = requested_strategy(
            self._options.start_with, self._machine(), self._variables, gpus=seen.gpus
        )
        if isinstance(found, Refused):
            raise RocsteadyError(f"--with {found.why}")
        self.strategy, self.remedy = found, self._options.start_with[-1]

    def _seen(self) -> VisibleGpus:
        return visible_to_a_run(self._machine(), self._knowledge)

    def _went_down(self) -> Failure:
        kind = self._failures.kinds[FailureKind.MACHINE_WENT_DOWN]
        return Failure(
            kind=FailureKind.MACHINE_WENT_DOWN,
            title=kind.title,
            words=kind.words,
            certainty=Certainty.CERTAIN,
            fingerprint=Fingerprint(kind=FailureKind.MACHINE_WENT_DOWN),
            seen=(),
            sources=kind.sources,
        )


def strategies_of(
    options: RunOptions, services: Services, command: tuple[str, ...], folder: Path
) -> StrategyHistory:
    """Return those of a run here; the machine is examined when that is first needed."""
    known = services.knowledge
    names = {*known.variables, *(variable.name for variable in harmful_variables())}
    return StrategyHistory(
        options,
        script=script_fingerprint(command, str(folder)),
        here=services.journal.here.machine,
        memory=services.memory,
        knowledge=known,
        machine=cache(lambda: examined(known)),
        variables={name: os.environ[name] for name in names if name in os.environ},
    )


def no_effect(end: AttemptEnd) -> tuple[str, ...]:
    """Return the settings of the strategy that changed nothing in an attempt."""
    return tuple(
        sorted({each.setting for each in end.applied if each.outcome is not SettingOutcome.APPLIED})
    )
