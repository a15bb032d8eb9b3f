"""Makes a plan: tries what can be tried, estimates the rest, ranks all, and says which to take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import date
from typing import Protocol

from msgspec.structs import replace

from rocsteady.job.stages import with_variant
from rocsteady.job.values import Job
from rocsteady.plan import Basis, Limit, Risk, Way
from rocsteady.planner import candidates, cpu, estimates
from rocsteady.planner.candidates import CPU
from rocsteady.planner.circumstances import Circumstances, key
from rocsteady.planner.completion import FailureCost, FailureHistory, finish
from rocsteady.planner.estimates import Measured
from rocsteady.planner.limits import limits, own_share
from rocsteady.planner.pace import pooled
from rocsteady.planner.ranking import GETS_THERE, in_time
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
from rocsteady.vocabulary import Strategy, Value

SEE_AND_START = 20.0  # seconds to see a failure, end what is left and start again
NO_SAVE_SEEN = 600.0  # seconds of work between checkpoints, where there are some and none was seen
FAR_SLOWER = 4.0  # a CPU so much slower than a GPU that works is not made faster


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
    ) -> None:
        self._clock = clock
        self._job, self._here, self._wish, self._make = job, here, wish, make
        self._today, self._say = today, say
        self._seen: dict[str, TrialResult] = {}  # the last of each strategy
        self.ways: list[Way] = []
        self.ruled_out: list[Way] = []
        self.not_tried: list[Way] = []
        self.limits: tuple[Limit, ...] = ()
        self.failures: list[str] = []  # kinds, in trials and in earlier runs
        self.observed: list[tuple[str, TrialResult]] = []  # way and what came of it
        self._notes: dict[tuple[str, str], tuple[str, ...]] = {}  # beside what a trial says itself
        self._grounds: dict[
            tuple[str, str], tuple[TrialResult | None, FailureHistory, Job | None]
        ] = {}

    def work(self) -> None:
        """Try and estimate."""
        if self._here.deadly:
            self.failures.append(candidates.WENT_DOWN)
        for history in self._here.histories.values():
            self.failures += history.kinds
        for way in candidates.local_ways(self._here):
            self._local(way)
        self._variants()
        if self._cpu_may_be_taken():
            self._tune()
        self._others()
        # Once more for all: the trials took some of the time to the deadline.
        self.ways = [self._forecast(way, *self._grounds[_name(way)]) for way in self.ways]

    @property
    def total(self) -> int | None:
        """Steps of the whole job, as a trial told."""
        return next((one.total for one in self._seen.values() if one.total), None)

    @property
    def left(self) -> int | None:
        """Steps that are to be made."""
        last = next(reversed(self._seen.values()), None)
        return self._left(last, self._job)

    def _local(self, way: Way) -> None:
        """Try one way on this machine, or say why not."""
        if way.basis is Basis.RULED_OUT:
            self.ruled_out.append(way)
        elif key(way.strategy) in self._seen:
            return
        else:
            self._try(way)

    def _cpu_may_be_taken(self) -> bool:
        """Tell whether it is worth the time to make the CPU faster."""
        on_gpu = [way for way in self.ways if not self._is_on_cpu(way) and way.pace]
        fastest = max((way.pace.rate for way in on_gpu if way.pace), default=0.0)
        ours = next((way.pace.rate for way in self.ways if way.id == CPU and way.pace), 0.0)
        return ours * FAR_SLOWER >= fastest or not any(in_time(way) for way in on_gpu)

    def _is_on_cpu(self, way: Way) -> bool:
        return way.strategy.device == CPU or not self._here.gpus

    def _try(self, way: Way) -> None:
        self._say(way.title)
        unseen = not self.limits
        results = self._make(
            self._job, way.strategy, short=False, remedies=True, sample_stacks=unseen
        )
        if not results:
            why = "no time was left; use --within to allow more"
            self.not_tried.append(replace(way, basis=Basis.NOT_TRIED, rests_on=(why,)))
            return
        self.failures += [one.failure for one in results if one.failure]
        last = by_strategy([one for one in results if self._counts(one, way)])
        self._seen |= last
        for one in last.values():
            self._take_in(self._way_of(way, one), one, trial_history(results, one))
        if unseen:
            self._see_limits(results[-1])

    def _counts(self, one: TrialResult, way: Way) -> bool:
        """Tell what a remedy came to from what it had no time for, or what has a trial of its own.

        A run that remedies have taken to the CPU says nothing that the trial of the CPU does not.
        """
        if one.strategy == way.strategy:
            return True
        if candidates.is_part_of_clean(one.strategy, self._here):
            return False
        return one.strategy.device == way.strategy.device and (one.works or bool(one.failure))

    def _way_of(self, way: Way, one: TrialResult) -> Way:
        """Name the way of an attempt: the one that was tried, or what a remedy made of it."""
        if one.strategy == way.strategy:
            return way
        title = candidates.titled(one.strategy, self._here)
        return replace(way, id=f"{way.id}+{one.remedy or 'other'}", title=title, rests_on=())

    def _take_in(
        self, way: Way, one: TrialResult, trial: FailureHistory, job: Job | None = None
    ) -> None:
        self.observed.append((way.id, one))
        rates = (one.pace.rate,) if one.pace else ()
        way = replace(way, strategy=one.strategy, pace=one.pace, rates=rates)
        if not one.works and not one.failure:  # it was cut short
            said = (failed(one), *way.rests_on)
            self.not_tried.append(replace(way, basis=Basis.NOT_TRIED, rests_on=said))
            return
        if not one.works and not survived(one):
            out = replace(way, basis=Basis.RULED_OUT, rests_on=(failed(one), *way.rests_on))
            self.ruled_out.append(out)
            return
        seen = together(self._here.history(one.strategy), trial)
        told = rests_on(one, seen)
        way = _with_failures(way, seen)
        self._notes[_name(way)] = way.rests_on
        self.ways.append(
            self._forecast(replace(way, rests_on=(*told, *way.rests_on)), one, seen, job)
        )

    def _forecast(
        self, way: Way, one: TrialResult | None, seen: FailureHistory, job: Job | None = None
    ) -> Way:
        self._grounds[_name(way)] = one, seen, job
        left = self._left(one, job or self._job)
        if way.pace is None or left is None:
            return way
        by_hand = estimates.UNKNOWN_SETUP if way.basis is Basis.ESTIMATE else 0.0
        setup = (sum(way.setup) / 2 if way.setup else by_hand) * 60
        loss = _loss(one, way, can_resume=self._job.resume is not None)
        due = None if self._wish.by is None else self._wish.by - self._clock()
        found = finish(way.pace, left, history=seen, loss=loss, due=due, setup=setup)
        if way.basis is Basis.ESTIMATE and found.in_time is not None:  # it may not work at all
            found = replace(found, in_time=found.in_time * GETS_THERE[way.risk])
        way = replace(way, finish=found)
        dollars = estimates.costs(way, max(found.early - setup, 0.0), found.late - setup)
        return replace(way, cost=dollars) if dollars else way

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

    def _tune(self) -> None:
        """Make the CPU as fast as it gets without a change in the script."""
        way = next((each for each in self.ways if each.id == CPU), None)
        first = self._seen.get(key(way.strategy)) if way else None
        if way is None or first is None or first.pace is None:
            return

        def attempt(strategy: Strategy) -> TrialResult | None:
            self._say(candidates.titled(strategy, self._here))
            results = self._make(
                self._job, strategy, short=True, remedies=False, sample_stacks=False
            )
            if results and strategy == way.strategy:
                self._see_again(way, results[-1])
            return results[-1] if results else None

        for tuned in cpu.tune(way.strategy, first, self._here.cores, attempt):
            if tuned.strategy == way.strategy:
                self._note(way, tuned.lines)
                continue
            made = Way(
                id=f"{CPU}+{'bf16' if tuned.changes else 'tuned'}",
                title=f"CPU, {', '.join(tuned.names)}",
                basis=Basis.TRIAL,
                rests_on=tuned.lines,
                changes=tuned.changes,
            )
            self._seen[key(tuned.strategy)] = tuned.tried
            self._take_in(made, tuned.tried, trial_history((tuned.tried,), tuned.tried))

    def _see_again(self, way: Way, one: TrialResult) -> None:
        """Take in a second trial of a way: the machine's own speed may have changed meanwhile."""
        number = next(place for place, each in enumerate(self.ways) if each.id == way.id)
        row = self.ways[number]
        first, seen, job = self._grounds[_name(row)]
        seen = together(seen, trial_history((one,), one))
        self._grounds[_name(row)] = first, seen, job
        if one.failure:
            self.failures.append(one.failure)
        row = _with_failures(row, seen)
        if row.pace and one.pace and one.works:
            once_more = f"second trial: {one.pace.rate / row.pace.rate:.2f} times as fast"
            self._notes[_name(row)] = (*self._notes[_name(row)], once_more)
            rates = (*row.rates, one.pace.rate)
            row = replace(row, pace=pooled(row.pace, one.pace), rates=rates)
        told = rests_on(replace(first, pace=row.pace), seen) if first is not None else ()
        self.ways[number] = replace(row, rests_on=(*told, *self._notes[_name(row)]))

    def _note(self, way: Way, lines: Iterable[str]) -> None:
        lines = tuple(lines)
        for place, each in enumerate(self.ways):
            if each.id == way.id:
                self._notes[_name(each)] = (*self._notes.get(_name(each), ()), *lines)
                self.ways[place] = replace(each, rests_on=(*each.rests_on, *lines))

    def _variants(self) -> None:
        """Try other sizes of the model on the fastest way that works."""
        best = max(
            (way for way in self.ways if way.pace and not way.variant),
            key=lambda way: way.pace.rate if way.pace else 0.0,
            default=None,
        )
        unknown = candidates.ON_CPU if self._here.deadly else Strategy()
        strategy = best.strategy if best else unknown
        for name, variant in self._job.variants.items():
            job = with_variant(self._job, name)
            way = Way(
                id=f"variant-{name}",
                title=f"{candidates.titled(strategy, self._here)}, variant {name}",
                basis=Basis.TRIAL,
                strategy=strategy,
                variant=name,
                command=job.command,
                changes=variant.words or "another model",
            )
            self._say(way.title)
            results = self._make(job, strategy, short=True, remedies=True, sample_stacks=False)
            if results:
                self._take_in(way, results[-1], trial_history(results, results[-1]), job)

    def _others(self) -> None:
        measured = self._measured()
        possible, out = estimates.other_ways(self._here, self.failures)
        self.ruled_out += out
        for way in possible:
            if way.id == estimates.CLOUD:
                rows = list(estimates.cloud_rows(way, measured, self._today, needs=0.0))
            else:
                rows = [self._on_this_card(estimates.row(way, measured, gpus=self._here.gpus))]
            self.ways += [self._forecast(each, None, FailureHistory()) for each in rows]

    def _on_this_card(self, way: Way) -> Way:
        """Trust a card that crashed the machine under other software no more than before."""
        return replace(way, risk=Risk.HIGH) if candidates.WENT_DOWN in self.failures else way

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
        return None

    def _see_limits(self, one: TrialResult) -> None:
        on_gpu = bool(self._here.gpus) and one.strategy.device != CPU
        if not on_gpu and any(way.pace and not self._is_on_cpu(way) for way in self.ways):
            return
        cores = 0 if any(map(is_of_loaders, self.failures)) else self._here.cores
        self.limits = tuple(limits(one, on_gpu=on_gpu, loader=one.loader, cores=cores))


def _with_failures(way: Way, seen: FailureHistory) -> Way:
    """Note the failures that were seen of a way: it gets there by being started again."""
    if not seen.failures:
        return replace(way, failed_steps=seen.steps)
    return replace(
        way,
        risk=Risk.MEDIUM,
        failures=seen.failures,
        failed_steps=seen.steps,
        kinds=seen.kinds,
    )


def _name(way: Way) -> tuple[str, str]:
    return way.id, key(way.strategy)


def _loss(one: TrialResult | None, way: Way, *, can_resume: bool) -> FailureCost:
    again = SEE_AND_START + (way.pace.starting if way.pace else 0.0)
    if one is None:
        return FailureCost(again=again, interval=NO_SAVE_SEEN)
    if not (can_resume or one.resumes):
        return FailureCost(again=again, interval=None)
    seconds = one.pace.seconds if one.pace else 0.0
    interval = seconds / one.saves if one.saves and seconds else NO_SAVE_SEEN
    return FailureCost(again=again, interval=interval)
