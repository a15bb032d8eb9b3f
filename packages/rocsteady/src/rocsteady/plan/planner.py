"""Makes the rows of a plan: tries what can be tried, estimates the rest, and forecasts each.

A row begins as an option (``candidates``). Its trial (``RunTrial``) gives a ``TrialResult`` for
each attempt. The pace, and the failures seen with that strategy, give a forecast of its end. What
no trial can show is estimated from a measured pace (``estimates``).
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path, PurePath
from typing import NamedTuple

from msgspec.structs import replace

from rocsteady import __version__
from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine.machine import Machine, examine, examined, software_of
from rocsteady.errors import RocsteadyError
from rocsteady.model import FailureKind, Risk, Strategy
from rocsteady.plan import candidates, estimates, saved_plan
from rocsteady.plan.bottleneck import MAX_WORKERS, limits, own_share
from rocsteady.plan.candidates import CPU, GPU
from rocsteady.plan.chains import Goals, chain_of, leader
from rocsteady.plan.circumstances import Circumstances, Goal, card_of, cores_here, facts_of
from rocsteady.plan.decision import by_hand
from rocsteady.plan.estimates import CLOUD, SHOWN_OFFERS, Measured, on_recorded, recorded_cpu
from rocsteady.plan.exports.export import ranks_per_host
from rocsteady.plan.pace import FailureCost, FailureHistory, finish
from rocsteady.plan.ranking import (
    GETS_THERE,
    TIME_FOR_TRIALS,
    in_time,
    is_rented,
    order_of_offer,
    ranked,
    reasons,
    recommended,
    take,
)
from rocsteady.plan.trials import (
    TrialKind,
    TrialResult,
    Trials,
    drill_step,
    failed,
    is_of_loaders,
    last_of_each_strategy,
    observation,
    rests_on,
    survived,
    together,
    trial_history,
    with_pace_over_restarts,
)
from rocsteady.plan.values import DRILL_STEP, Basis, Limit, Option, Plan
from rocsteady.probe.folders import changes_in_words
from rocsteady.run.job.stages import with_variant
from rocsteady.run.job.values import Job, Variant
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.redaction import shown_command
from rocsteady.system.root import Root

LOSES_ALL = "no way to resume is known: a failure costs all that was done"
WORTH_SAVING = 600.0  # seconds of work
ALL_OF_IT = 0.8  # of the gain that is to be had from loader workers
NEEDS_GPU = "torch-without-gpu-support"  # a failure: no CPU can run the script as it is
LOADER_BOUND = 0.4  # of a step; from here on more workers are tried
DONE_SOONER_HERE = "the job is done here before one is set up"
NO_SAVE_SEEN = 600.0  # seconds of work between checkpoints, where there are some and none was seen


# Returns the result of each attempt; () when there is no time left for a trial.
RunTrial = Callable[[Job, Strategy, TrialKind], tuple[TrialResult, ...]]


class _Row(NamedTuple):
    """An option with what its forecast rests on."""

    option: Option
    job: Job  # a variant's own, or the job itself
    result: TrialResult | None = None  # None: an estimate
    history: FailureHistory = FailureHistory()


class Planner:
    def __init__(  # noqa: PLR0913 - all that it rests on
        self,
        job: Job,
        here: Circumstances,
        goal: Goal,
        run_trial: RunTrial,
        *,
        today: date,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        base: Measured | None = None,
    ) -> None:
        self._clock, self._base = clock, base
        self._job, self._here, self._goal, self._run_trial = job, here, goal, run_trial
        self._today, self._say = today, say
        self._results: list[TrialResult] = []  # the last of each strategy
        self._rows: list[_Row] = []
        self.options: list[Option] = []
        self.ruled_out: list[Option] = []
        self.not_tried: list[Option] = []
        self.limits: tuple[Limit, ...] = ()
        self.failures: list[str] = []  # kinds, in trials and in earlier runs
        self.observed: list[tuple[str, TrialResult]] = []  # the id of an option, and its result

    def work(self) -> None:
        if self._here.deadly:
            self.failures.append(FailureKind.MACHINE_WENT_DOWN)
        for _, history in self._here.histories:
            self.failures += history.kinds
        for option in candidates.local_options(self._here):
            if option.basis is Basis.RULED_OUT:
                self.ruled_out.append(option)
            elif all(result.strategy != option.strategy for result in self._results):
                self._try(option)
        self._try_more_workers()
        self._try_variants()
        self._estimate_others()
        # After all trials: they took some of the time to the deadline.
        options = self._best_offers([self._forecast(row) for row in self._rows])
        here = [it for it in options if it.basis is Basis.TRIAL and not it.changes and in_time(it)]
        done_here = min((it.finish.late for it in here if it.finish), default=math.inf)
        for option in options:
            if option.cost and option.setup and option.setup[0] * 60 > done_here:
                why = (DONE_SOONER_HERE, *option.rests_on)
                self.ruled_out.append(replace(option, basis=Basis.RULED_OUT, rests_on=why))
            else:
                self.options.append(option)

    def _best_offers(self, options: list[Option]) -> list[Option]:
        """Leave out rented cards that others are better than."""
        measured = self._measured()
        shown = SHOWN_OFFERS if measured and measured.on_gpu else 1
        offers = sorted(
            filter(is_rented, options), key=lambda it: order_of_offer(it, self._goal.budget)
        )
        best = [it for it in offers if not it.strategy.gpus][:shown]
        best += [it for it in offers[:1] if it.strategy.gpus]  # several, if they are better
        return [it for it in options if not is_rented(it) or it in best]

    def estimate(self, option: Option) -> None:
        self.options.append(self._forecast(_Row(option, self._job)))

    @property
    def total(self) -> int | None:
        return next((result.total for result in self._results if result.total), None)

    @property
    def left(self) -> int | None:
        return self._left(self._results[-1] if self._results else None, self._job)

    @property
    def drill_step(self) -> int:
        return max(map(drill_step, self._results), default=DRILL_STEP)

    @property
    def resumes(self) -> bool:
        """Whether a new process goes on from what was saved."""
        return self._job.resume is not None or any(result.resumes for result in self._results)

    def _try(self, option: Option) -> None:
        """Try an option of this machine: each strategy that the trial came to is a row."""
        self._say(option.title)
        first = not self.limits
        kind = TrialKind.WITH_STACKS if first else TrialKind.PACE
        results = self._run_trial(self._job, option.strategy, kind)
        if not results:
            self._leave_out(option)
            return
        self.failures += [result.failure for result in results if result.failure]
        counted = last_of_each_strategy(
            result for result in results if self._counts(result, option)
        )
        for each in counted:
            result = with_pace_over_restarts(results, each)
            self._keep(result)
            row = self._option_of(option, result)
            self._take_in(row, result, trial_history(results, result), self._job)
        if first:
            self._find_limits(results[-1])

    def _keep(self, result: TrialResult) -> None:
        for number, earlier in enumerate(self._results):
            if earlier.strategy == result.strategy:
                self._results[number] = result
                return
        self._results.append(result)

    def _leave_out(self, option: Option) -> None:
        why = f"no time left: {TIME_FOR_TRIALS}"
        self.not_tried.append(replace(option, basis=Basis.NOT_TRIED, rests_on=(why,)))

    def _counts(self, result: TrialResult, option: Option) -> bool:
        """Whether an attempt counts as a measurement of its strategy.

        Not if another trial measures that directly (CPU, harmful variables unset), nor if a remedy
        had no time to work or fail.
        """
        if result.strategy == option.strategy:
            return True
        if candidates.is_part_of_clean(result.strategy, self._here):
            return False
        same_device = result.strategy.device == option.strategy.device
        return same_device and (result.works or bool(result.failure))

    def _option_of(self, option: Option, result: TrialResult) -> Option:
        """Return the option of an attempt: the one that was tried, or what a remedy made of it."""
        if result.strategy == option.strategy:
            return option
        title = candidates.titled(result.strategy, self._here)
        name = f"{option.id}+{result.remedy or 'other'}"
        return replace(option, id=name, title=title, rests_on=())

    def _take_in(
        self, option: Option, result: TrialResult, trial: FailureHistory, job: Job
    ) -> None:
        """Make a row of a result, or say why it is none."""
        self.observed.append((option.id, result))
        option = replace(option, strategy=result.strategy, pace=result.pace)
        if not result.works and not result.failure:  # it was cut short
            why = (failed(result), *option.rests_on)
            option = replace(option, basis=Basis.NOT_TRIED, cut_short=True, rests_on=why)
            self.not_tried.append(option)
        elif not result.works and not survived(result):
            command = (*job.command, *self._here.defaults)
            why = (failed(result, command), *option.rests_on)
            option = replace(option, basis=Basis.RULED_OUT, kinds=(result.failure,))
            self.ruled_out.append(replace(option, rests_on=why))
        else:
            history = together(self._here.history(result.strategy), trial)
            option = replace(option, rests_on=(*rests_on(result, history), *option.rests_on))
            counted = FailureHistory() if result.over_restarts else history  # it is in the pace
            self._rows.append(_Row(_with_failures(option, history), job, result, counted))

    def _forecast(self, row: _Row) -> Option:
        option = row.option
        left = self._left(row.result, row.job)
        if option.pace is None or left is None:
            return option
        setup = by_hand(option)
        resumes = self._job.resume is not None or row.result is None or row.result.resumes
        loss = _loss(row, can_resume=resumes)
        due = None if self._goal.by is None else self._goal.by - self._clock()
        end = finish(option.pace, left, history=row.history, loss=loss, due=due, setup=setup)
        if option.basis is Basis.ESTIMATE and end.in_time is not None:  # it may not work at all
            end = replace(end, in_time=end.in_time * GETS_THERE[option.risk])
        option = replace(option, finish=end, resumes=resumes)
        if not resumes and end.seconds > WORTH_SAVING:
            option = replace(option, rests_on=(option.rests_on[0], LOSES_ALL, *option.rests_on[1:]))
        dollars = estimates.costs(option, max(end.early - setup, 0.0), end.late - setup)
        return replace(option, cost=dollars) if dollars else option

    def _left(self, result: TrialResult | None, job: Job) -> int | None:
        epochs, done = self._goal.epochs, self._goal.done
        if job.total is not self._job.total and job.total:  # a variant's own
            if job.total.count:
                return job.total.count
            epochs, done = job.total.epochs, 0
        elif self._goal.left is not None:
            return self._goal.left
        sizes = [each.size for each in (result, *self._results) if each and each.size]
        if epochs and sizes and sizes[0].batches:
            return max(1, epochs * sizes[0].batches - done)
        return (result.total if result and result.total else None) or self.total

    def _try_variants(self) -> None:
        paces = [
            (row.option.pace.rate, row.option.strategy) for row in self._rows if row.option.pace
        ]
        on_cpu = candidates.on_cpu(self._here)
        unknown = self.not_tried[0].strategy if self.not_tried else on_cpu
        strategy = max(paces, key=lambda each: each[0])[1] if paces else unknown
        for name, variant in self._job.variants.items():
            self._try_variant(name, variant, strategy)
        derived = {}
        if FailureKind.OOM_DEVICE in self.failures:
            derived = candidates.smaller_batch((*self._job.command, *self._here.defaults))
        if self._here.gpus and FailureKind.MACHINE_WENT_DOWN not in self.failures:
            derived |= candidates.in_bfloat16(self._job.command, self._here.switches)
        for name, variant in derived.items():
            self._try_variant(name, variant, candidates.local_options(self._here)[0].strategy)

    def _try_variant(self, name: str, variant: Variant, strategy: Strategy) -> None:
        job = with_variant(replace(self._job, variants={name: variant}), name)
        job = replace(job, variants=self._job.variants)
        same = job.command == self._job.command or name.startswith(candidates.WORKERS)
        other_model = "" if same else "another model"
        strategy = replace(strategy, variables={**strategy.variables, **variant.environment})
        option = Option(
            id=f"variant-{name}",
            title=f"{candidates.titled(strategy, self._here)}, variant {name}",
            basis=Basis.TRIAL,
            strategy=strategy,
            variant=name,
            command=job.command,
            changes=variant.words or other_model,
        )
        self._say(option.title)
        results = self._run_trial(job, strategy, TrialKind.COMPARISON)
        if results:
            self._take_in(option, results[-1], trial_history(results, results[-1]), job)
        else:
            self._leave_out(option)

    def _try_more_workers(self) -> None:
        """Try more loader workers, where loading is what takes the time and the script has some."""
        first, result = next(iter(self.limits), None), next(iter(self._results), None)
        if result is None or result.loader is None or any(map(is_of_loaders, self.failures)):
            return
        wanted, there_are = min(self._here.cores, MAX_WORKERS), result.loader.workers
        if first is None or first.part != "data" or first.share < LOADER_BOUND:
            return
        if not there_are:
            command = (*self._job.command, *self._here.defaults)
            # Loading that waits needs no processor: what gains all there is gets still more.
            still_loading = first.share / wanted > 1 - first.share
            for workers in dict.fromkeys((wanted, MAX_WORKERS) if still_loading else (wanted,)):
                for name, variant in candidates.more_workers(command, workers).items():
                    self._try_variant(name, variant, result.strategy)
                found = self._rows[-1].option.pace
                gain = found.rate / result.pace.rate if found and result.pace else 0.0
                if gain < first.gain * workers / wanted * ALL_OF_IT:
                    break
                best = f"{workers} loader workers, as was tried"
                self.limits = (replace(first, best=best, gain=gain), *self.limits[1:])
        elif wanted > there_are:
            strategy = replace(result.strategy, workers=wanted)
            option = Option(
                id=f"{GPU if self._is_on_gpu(result) else CPU}+workers",
                title=candidates.titled(strategy, self._here),
                basis=Basis.TRIAL,
                strategy=strategy,
            )
            self._try(option)

    def _estimate_others(self) -> None:
        """Add what cannot be tried here: other software for this card, and rented ones."""
        measured = self._measured()
        works = any(row.option.id.startswith(GPU) for row in self._rows)
        if fixed := candidates.fixed_gpu(self._here, works=works):
            pace, basis = estimates.same_card(measured)
            fixed = replace(fixed, pace=pace, rests_on=(*fixed.rests_on, *basis))
            self._rows.append(_Row(fixed, self._job))
        possible, out = estimates.other_options(self._here, self.failures, self._job.command)
        self.ruled_out += out
        for option in possible:
            if fixed and option.id in estimates.WHEELS:  # the fix says which
                continue
            if option.id == estimates.CLOUD:
                rows = list(
                    estimates.cloud_rows(
                        option, measured, self._today, self._needs(), self._job.command
                    )
                )
            else:
                row = estimates.row(option, measured, gpus=self._here.gpus_together)
                # A card that crashed the machine is trusted no more under other software.
                went_down = FailureKind.MACHINE_WENT_DOWN in self.failures
                rows = [replace(row, risk=Risk.HIGH) if went_down else row]
            self._rows += [_Row(each, self._job) for each in rows]

    def _needs(self) -> float:
        """Return the GB that did not suffice here, or less than what a trial used."""
        if FailureKind.OOM_DEVICE in self.failures:
            return estimates.memory_of(self._here)
        used = [it.pace.gpu_memory for it in self._results if it.pace and it.pace.gpu_memory]
        return max(used, default=0) * 0.99 / (1 << 30)

    def _measured(self) -> Measured | None:
        """Return what estimates start from: a pace on the GPU before one on the CPU."""
        paces = [(result.pace, self._is_on_gpu(result)) for result in self._results]
        known = [(pace, on_gpu) for pace, on_gpu in paces if pace is not None]
        if not known:
            return self._base
        pace, on_gpu = next((each for each in known if each[1]), known[0])
        own = own_share(self.limits)
        card, cores = self._here.card, self._here.cores
        return Measured(pace=pace, on_gpu=on_gpu, card=card, own=own, cores=cores)

    def _find_limits(self, result: TrialResult) -> None:
        """See where the time goes; of the CPU only if nothing runs on the GPU."""
        on_gpu = self._is_on_gpu(result)
        gpu_runs = self._here.gpus and any(
            row.option.pace and row.option.strategy.device != CPU for row in self._rows
        )
        if on_gpu or not gpu_runs:
            cores = 0 if any(map(is_of_loaders, self.failures)) else self._here.cores
            self.limits = tuple(limits(result, on_gpu=on_gpu, loader=result.loader, cores=cores))

    def _is_on_gpu(self, result: TrialResult) -> bool:
        return bool(self._here.gpus) and result.strategy.device != CPU


def _with_failures(option: Option, history: FailureHistory) -> Option:
    """Note the failures that were seen of an option: it gets there by being started again."""
    option = replace(option, failed_steps=history.steps)
    if not history.failures:
        return option
    return replace(option, risk=Risk.MEDIUM, failures=history.failures, kinds=history.kinds)


def _loss(row: _Row, *, can_resume: bool) -> FailureCost:
    result, pace = row.result, row.option.pace
    again = row.history.seen_and_ended + (pace.starting if pace else 0.0)
    if result is None:
        return FailureCost(again=again, interval=NO_SAVE_SEEN)
    if not can_resume:
        return FailureCost(again=again, interval=None)
    seconds = result.pace.seconds if result.pace else 0.0
    interval = seconds / result.saves if result.saves and seconds else NO_SAVE_SEEN
    return FailureCost(again=again, interval=interval)


# Each ends with a command, to which the user's own is added.
UNTRIED = (
    "No recommendation: nothing was tried on this machine, so its options cannot be compared. To"
    " measure them: rocsteady plan"
)
UNMEASURED = (
    "No recommendation: no trial was long enough to measure a speed, so the options cannot be"
    " compared. To allow more time: rocsteady plan --within 15m"
)
NOTHING_WORKS = (
    "No recommendation: nothing that was tried here works, so no speed is known and the options"
    " cannot be compared. To see why: rocsteady plan --details all"
)
NO_ROOM = (
    "No recommendation: the job does not fit into the memory of this GPU, so no speed is known and"
    " the options cannot be compared. Take one that needs less memory or has more, and plan again:"
    " rocsteady plan"
)
EXPORTED = ("wsl2", "container")  # options that have a file of their own name
NOTHING_TRIED = "nothing was tried on the recorded machine"
PASSED = (
    "No recommendation: the deadline is in the past. Set another one, and plan again: deadline in"
    " rocsteady.toml"
)
NO_PACE = (
    "No recommendation: there are no trials of this command to scale, so no speed is known and"
    " the options cannot be compared. To measure it on this machine first: rocsteady plan"
)


def count_trials(job: Job, here: Circumstances) -> int:
    """Return how many options are to be tried, if there is time for all."""
    options = candidates.local_options(here)
    return sum(option.basis is Basis.TRIAL for option in options) + len(job.variants)


def worked_planner(  # noqa: PLR0913 - all that it rests on
    job: Job,
    here: Circumstances,
    goal: Goal,
    run_trial: RunTrial = lambda *_: (),
    *,
    say: Callable[[str], None] = lambda _: None,
    base: Measured | None = None,
    why: str = "",
) -> Planner:
    """Make a planner and have it work; ``why`` nothing is tried, where it has only what was."""
    today = date.today()  # noqa: DTZ011 - the user's own day
    planner = Planner(job, here, goal, run_trial, today=today, say=say, base=base)
    planner.work()
    if why:
        planner.not_tried = [replace(option, rests_on=(why,)) for option in planner.not_tried]
    return planner


def make_plan(  # noqa: PLR0913 - all that it rests on
    job: Job, folder: Path, here: Circumstances, goal: Goal, planner: Planner, *, machine: str = ""
) -> Plan:
    """Put the options in order, number them, and say which to take."""
    now = time.time()
    goals = Goals(
        left=planner.left or 0,
        due=None if goal.by is None else goal.by - now,
        budget=goal.budget,
        resumes=planner.resumes,
    )
    options = ranked(planner.options, budget=goal.budget)
    if options and goals.left:
        first = leader(options, goals)
        options = [first, *(it for it in options if it is not first)]
    numbered = tuple(_numbered(option, number) for number, option in enumerate(options, start=1))
    plan = Plan(
        rocsteady=__version__,
        made=now,
        command=job.command,
        folder=str(folder),
        software=here.software,
        total=job.total.count if job.total and job.total.count else planner.total,
        left=planner.left,
        deadline=goal.by,
        budget=goal.budget,
        options=numbered,
        ruled_out=tuple(planner.ruled_out),
        not_tried=tuple(planner.not_tried),
        limits=planner.limits,
        drill_step=planner.drill_step,
        machine=machine,
    )
    if numbered and not any(it.pace or it.basis is Basis.TRIAL for it in numbered):
        why = UNMEASURED if planner.not_tried else NOTHING_WORKS
        if set(planner.failures) == {FailureKind.OOM_DEVICE}:
            why = NO_ROOM
        return replace(plan, take=_for(plan, why if planner.observed else UNTRIED))
    if not (planner.observed or machine):
        return replace(plan, take=_for(plan, UNTRIED))
    if goals.due is not None and goals.due <= 0:
        return replace(plan, take=PASSED)
    chosen = recommended(plan.options, plan.budget)
    plan = replace(plan, take=take(plan), reasons=reasons(plan), recommended=chosen)
    if not (chosen and goals.left):
        return plan
    return replace(plan, chain=chain_of(plan.options, plan.options[0], goals))


def with_trials(plan: Plan, trials: Trials) -> Plan:
    changed = trials.changed() if trials.count else ()
    warnings = plan.warnings
    if changed or changed is None:
        warnings = (*warnings, f"Trials: {changes_in_words(changed)}.")
    return replace(plan, trials=trials.count, trial_seconds=trials.seconds, warnings=warnings)


def _numbered(option: Option, number: int) -> Option:
    if option.basis is Basis.TRIAL:
        do = f"rocsteady run --plan {number}"
    elif option.id.startswith(CLOUD):
        do = f"rocsteady plan --export skypilot --option {number}"
    elif option.id in EXPORTED:
        do = f"rocsteady plan --export {option.id} --option {number}"
    else:
        do = ""
    return replace(option, number=number, do=do)


def remember(planner: Planner, here: Circumstances, memory: Memory, journal: Journal) -> None:
    for option, result in planner.observed:
        seen = observation(result, option, software=here.software, at=time.time())
        memory.observed(journal.here.machine, seen)


def recorded_plan(job: Job, folder: Path, root: Root, name: str, goal: Goal) -> Plan:
    """Estimate every option that a recorded machine offers. The plan is not kept."""
    known = doctors_knowledge()
    machine, _ = examine(root, known.variables)
    there = replace(facts_of(machine, known), ranks=ranks_per_host(job.command) or 0)
    machine_here = examined(known, job.command)
    last = _last_plan_here(job, folder, machine_here)
    base = _measured_here(last, machine_here, there)
    planner = worked_planner(job, there, goal, base=base, why=NOTHING_TRIED)
    _estimate_local(planner, there, base, last)
    plan = make_plan(job, folder, there, goal, planner, machine=PurePath(name).name)
    typed = f"rocsteady plan --root {shlex.quote(name)}"
    options = tuple(
        replace(option, do=option.do.replace("rocsteady plan", typed)) for option in plan.options
    )
    said = plan.take if any(it.pace for it in options) else _for(plan, NO_PACE)
    return replace(plan, options=options, take=said)


def _for(plan: Plan, text: str) -> str:
    return f"{text} -- {shown_command(plan.command)}"


def _estimate_local(
    planner: Planner, there: Circumstances, base: Measured | None, last: Plan | None
) -> None:
    """Turn what would be tried on that machine into rows, each with the risks that remain there."""
    elsewhere, planner.options = planner.options, []
    fixed = candidates.is_blocked(there) and any(it.id == candidates.FIXED for it in elsewhere)
    tried, failed_here = (last.options, last.ruled_out) if last else ((), ())
    needs_gpu = next((it for it in failed_here if NEEDS_GPU in it.kinds), None)
    paces = {option.variant: option.pace for option in tried if option.variant and option.pace}
    unknown = [it for it in planner.not_tried if it.variant and it.variant not in paces]
    for option in planner.not_tried:
        if option in unknown or (fixed and option.id == candidates.CLEAN):
            continue  # the doctor's steps set these variables too
        cpu = option.strategy == candidates.on_cpu(there)
        if cpu and needs_gpu:
            planner.ruled_out.append(replace(needs_gpu, title=option.title))
            continue
        measured = replace(base, pace=paces.get(option.variant, base.pace)) if base else None
        pace, basis = recorded_cpu(measured) if cpu else on_recorded(measured)
        risks = [] if cpu else there.findings_with(option.strategy)
        found = tuple(
            f"{each.rule}: {each.summary}" for each in risks if each.severity is not Severity.NOTES
        )
        estimated = replace(
            option,
            basis=Basis.ESTIMATE,
            pace=pace,
            setup=(0.0, 0.0),
            risk=Risk.MEDIUM if found else Risk.LOW,
            rests_on=(*option.rests_on, *basis, *found),
        )
        planner.estimate(estimated)
    planner.options += elsewhere
    planner.not_tried = unknown


def _last_plan_here(job: Job, folder: Path, machine: Machine) -> Plan | None:
    """Return the last plan, if it is of the same command and its trials were on this machine."""
    try:
        plan = saved_plan.load_plan(folder)
    except RocsteadyError:
        return None
    here = plan.command == job.command and plan.software == software_of(machine)
    return plan if here else None


def _measured_here(plan: Plan | None, machine: Machine, there: Circumstances) -> Measured | None:
    """Return the pace of the last plan's trials, on a GPU before the CPU."""
    tried = [
        each
        for each in (plan.options if plan else ())
        if each.basis is Basis.TRIAL and not each.variant and each.pace
    ]
    if plan is None or not tried:
        return None
    option = next((each for each in tried if _is_on_gpu(each)), tried[0])
    assert option.pace is not None  # noqa: S101 - as chosen
    return Measured(
        pace=option.pace,
        on_gpu=_is_on_gpu(option),
        card=card_of(machine),
        own=own_share(plan.limits),
        cores=cores_here(),
        recorded=True,
        target=there.card,
        target_cores=there.cores,
    )


def _is_on_gpu(option: Option) -> bool:
    return option.id.startswith(GPU)
