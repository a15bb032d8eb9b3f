"""Makes a plan: tries what can be tried, estimates the rest, ranks all, and says which to take."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from typing import Protocol

from msgspec.structs import replace

from rocsteady.job.stages import with_variant
from rocsteady.job.values import Job
from rocsteady.model import Strategy, Value
from rocsteady.plan import Basis, Limit, Option, Risk
from rocsteady.planner import candidates, estimates
from rocsteady.planner.bottleneck import limits, own_share
from rocsteady.planner.candidates import CPU
from rocsteady.planner.circumstances import Circumstances, key
from rocsteady.planner.completion import FailureCost, FailureHistory, finish
from rocsteady.planner.estimates import Measured
from rocsteady.planner.ranking import GETS_THERE
from rocsteady.planner.trial_evidence import (
    by_strategy,
    failed,
    is_of_loaders,
    rests_on,
    survived,
    together,
    trial_history,
)
from rocsteady.planner.trial_result import TrialResult

SEE_AND_START = 20.0  # seconds to see a failure, end what is left and start again
NO_SAVE_SEEN = 600.0  # seconds of work between checkpoints, where there are some and none was seen


class Wish(Value, frozen=True, kw_only=True):
    """What is wanted of a job, in figures."""

    left: int | None = None  # steps; None: not known before a trial
    epochs: int | None = None
    done: int = 0  # steps that a run has made and can go on from
    by: float | None = None  # by the wall clock
    budget: float | None = None


class Make(Protocol):
    """Makes a trial; () when there is no time left for another."""

    def __call__(
        self, job: Job, strategy: Strategy, *, short: bool, remedies: bool, sample_stacks: bool
    ) -> tuple[TrialResult, ...]:
        """Return what came of each attempt."""


class Planner:
    """Knows what was tried so far."""

    def __init__(  # noqa: PLR0913 - all that it rests on
        self,
        job: Job,
        here: Circumstances,
        wish: Wish,
        make: Make,
        *,
        today: date,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        base: Measured | None = None,
    ) -> None:
        self._clock, self._base = clock, base
        self._job, self._here, self._wish, self._make = job, here, wish, make
        self._today, self._say = today, say
        self._seen: dict[str, TrialResult] = {}  # the last of each strategy
        self.options: list[Option] = []
        self.ruled_out: list[Option] = []
        self.not_tried: list[Option] = []
        self.limits: tuple[Limit, ...] = ()
        self.failures: list[str] = []  # kinds, in trials and in earlier runs
        self.observed: list[tuple[str, TrialResult]] = []  # option and what came of it
        self._grounds: dict[
            tuple[str, str], tuple[TrialResult | None, FailureHistory, Job | None]
        ] = {}

    def work(self) -> None:
        """Try and estimate."""
        if self._here.deadly:
            self.failures.append(candidates.WENT_DOWN)
        for history in self._here.histories.values():
            self.failures += history.kinds
        for option in candidates.local_options(self._here):
            self._local(option)
        self._variants()
        self._others()
        # Once more for all: the trials took some of the time to the deadline.
        self.options = [
            self._forecast(option, *self._grounds[_name(option)]) for option in self.options
        ]

    @property
    def total(self) -> int | None:
        """Steps of the whole job, as a trial told."""
        return next((one.total for one in self._seen.values() if one.total), None)

    @property
    def left(self) -> int | None:
        """Steps that are to be made."""
        last = next(reversed(self._seen.values()), None)
        return self._left(last, self._job)

    def _local(self, option: Option) -> None:
        """Try one option on this machine, or say why not."""
        if option.basis is Basis.RULED_OUT:
            self.ruled_out.append(option)
        elif key(option.strategy) in self._seen:
            return
        else:
            self._try(option)

    def _is_on_cpu(self, option: Option) -> bool:
        return option.strategy.device == CPU or not self._here.gpus

    def _try(self, option: Option) -> None:
        self._say(option.title)
        unseen = not self.limits
        results = self._make(
            self._job, option.strategy, short=False, remedies=True, sample_stacks=unseen
        )
        if not results:
            self._leave_out(option)
            return
        self.failures += [one.failure for one in results if one.failure]
        last = by_strategy([one for one in results if self._counts(one, option)])
        self._seen |= last
        for one in last.values():
            self._take_in(self._option_of(option, one), one, trial_history(results, one))
        if unseen:
            self._see_limits(results[-1])

    def _leave_out(self, option: Option) -> None:
        why = "not enough time; use --within to allow more"
        self.not_tried.append(replace(option, basis=Basis.NOT_TRIED, rests_on=(why,)))

    def _counts(self, one: TrialResult, option: Option) -> bool:
        """Tell what a remedy came to from what it had no time for, or what has a trial of its own.

        A run that remedies have taken to the CPU says nothing that the trial of the CPU does not.
        """
        if one.strategy == option.strategy:
            return True
        if candidates.is_part_of_clean(one.strategy, self._here):
            return False
        return one.strategy.device == option.strategy.device and (one.works or bool(one.failure))

    def _option_of(self, option: Option, one: TrialResult) -> Option:
        """Name the option of an attempt: the one that was tried, or what a remedy made of it."""
        if one.strategy == option.strategy:
            return option
        title = candidates.titled(one.strategy, self._here)
        return replace(option, id=f"{option.id}+{one.remedy or 'other'}", title=title, rests_on=())

    def _take_in(
        self, option: Option, one: TrialResult, trial: FailureHistory, job: Job | None = None
    ) -> None:
        self.observed.append((option.id, one))
        rates = (one.pace.rate,) if one.pace else ()
        option = replace(option, strategy=one.strategy, pace=one.pace, rates=rates)
        if not one.works and not one.failure:  # it was cut short
            said = (failed(one), *option.rests_on)
            self.not_tried.append(replace(option, basis=Basis.NOT_TRIED, rests_on=said))
            return
        if not one.works and not survived(one):
            out = replace(option, basis=Basis.RULED_OUT, rests_on=(failed(one), *option.rests_on))
            self.ruled_out.append(out)
            return
        seen = together(self._here.history(one.strategy), trial)
        told = rests_on(one, seen)
        option = _with_failures(option, seen)
        self.options.append(
            self._forecast(replace(option, rests_on=(*told, *option.rests_on)), one, seen, job)
        )

    def _forecast(
        self, option: Option, one: TrialResult | None, seen: FailureHistory, job: Job | None = None
    ) -> Option:
        self._grounds[_name(option)] = one, seen, job
        left = self._left(one, job or self._job)
        if option.pace is None or left is None:
            return option
        by_hand = estimates.UNKNOWN_SETUP if option.basis is Basis.ESTIMATE else 0.0
        setup = (sum(option.setup) / 2 if option.setup else by_hand) * 60
        loss = _loss(one, option, can_resume=self._job.resume is not None)
        due = None if self._wish.by is None else self._wish.by - self._clock()
        found = finish(option.pace, left, history=seen, loss=loss, due=due, setup=setup)
        if option.basis is Basis.ESTIMATE and found.in_time is not None:  # it may not work at all
            found = replace(found, in_time=found.in_time * GETS_THERE[option.risk])
        option = replace(option, finish=found)
        dollars = estimates.costs(option, max(found.early - setup, 0.0), found.late - setup)
        return replace(option, cost=dollars) if dollars else option

    def _left(self, one: TrialResult | None, job: Job) -> int | None:
        epochs, done = self._wish.epochs, self._wish.done
        if job.total is not self._job.total and job.total:  # a variant's own
            if job.total.count:
                return job.total.count
            epochs, done = job.total.epochs, 0
        elif self._wish.left is not None:
            return self._wish.left
        sizes = [each.size for each in (one, *self._seen.values()) if each and each.size]
        if epochs and sizes and sizes[0].batches:
            return max(1, epochs * sizes[0].batches - done)
        return (one.total if one and one.total else None) or self.total

    def _variants(self) -> None:
        """Try other sizes of the model on the fastest option that works."""
        best = max(
            (option for option in self.options if option.pace and not option.variant),
            key=lambda option: option.pace.rate if option.pace else 0.0,
            default=None,
        )
        unknown = candidates.ON_CPU if self._here.deadly else Strategy()
        strategy = best.strategy if best else unknown
        for name, variant in self._job.variants.items():
            job = with_variant(self._job, name)
            option = Option(
                id=f"variant-{name}",
                title=f"{candidates.titled(strategy, self._here)}, variant {name}",
                basis=Basis.TRIAL,
                strategy=strategy,
                variant=name,
                command=job.command,
                changes=variant.words or "another model",
            )
            self._say(option.title)
            results = self._make(job, strategy, short=True, remedies=True, sample_stacks=False)
            if results:
                self._take_in(option, results[-1], trial_history(results, results[-1]), job)
            else:
                self._leave_out(option)

    def _others(self) -> None:
        measured = self._measured()
        possible, out = estimates.other_options(self._here, self.failures)
        self.ruled_out += out
        for option in possible:
            if option.id == estimates.CLOUD:
                rows = list(estimates.cloud_rows(option, measured, self._today, needs=0.0))
            else:
                rows = [self._on_this_card(estimates.row(option, measured, gpus=self._here.gpus))]
            self.options += [self._forecast(each, None, FailureHistory()) for each in rows]

    def estimate(self, option: Option) -> None:
        """Add a row that nothing was tried for."""
        self.options.append(self._forecast(option, None, FailureHistory()))

    def _on_this_card(self, option: Option) -> Option:
        """Trust a card that crashed the machine under other software no more than before."""
        return replace(option, risk=Risk.HIGH) if candidates.WENT_DOWN in self.failures else option

    def _measured(self) -> Measured | None:
        """Return what estimates start from: a pace on the GPU before one on the CPU."""
        with_pace = [one for one in self._seen.values() if one.pace is not None]
        on_gpu = [one for one in with_pace if self._here.gpus and one.strategy.device != CPU]
        chosen = (on_gpu or with_pace)[:1]
        for one in chosen:
            if one.pace is not None:
                own = own_share(self.limits)
                card = self._here.card
                return Measured(pace=one.pace, on_gpu=bool(on_gpu), card=card, own=own)
        return self._base

    def _see_limits(self, one: TrialResult) -> None:
        on_gpu = bool(self._here.gpus) and one.strategy.device != CPU
        if not on_gpu and any(
            option.pace and not self._is_on_cpu(option) for option in self.options
        ):
            return
        cores = 0 if any(map(is_of_loaders, self.failures)) else self._here.cores
        self.limits = tuple(limits(one, on_gpu=on_gpu, loader=one.loader, cores=cores))


def _with_failures(option: Option, seen: FailureHistory) -> Option:
    """Note the failures that were seen of an option: it gets there by being started again."""
    if not seen.failures:
        return replace(option, failed_steps=seen.steps)
    return replace(
        option,
        risk=Risk.MEDIUM,
        failures=seen.failures,
        failed_steps=seen.steps,
        kinds=seen.kinds,
    )


def _name(option: Option) -> tuple[str, str]:
    return option.id, key(option.strategy)


def _loss(one: TrialResult | None, option: Option, *, can_resume: bool) -> FailureCost:
    again = SEE_AND_START + (option.pace.starting if option.pace else 0.0)
    if one is None:
        return FailureCost(again=again, interval=NO_SAVE_SEEN)
    if not (can_resume or one.resumes):
        return FailureCost(again=again, interval=None)
    seconds = one.pace.seconds if one.pace else 0.0
    interval = seconds / one.saves if one.saves and seconds else NO_SAVE_SEEN
    return FailureCost(again=again, interval=interval)
