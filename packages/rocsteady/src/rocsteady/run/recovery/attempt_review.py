"""After an attempt: name why it ended, keep the evidence, and choose what comes next."""

from __future__ import annotations

import time
from itertools import islice
from statistics import median

import msgspec

from rocsteady.exit_codes import PERSON_NEEDED, RETRY
from rocsteady.failures.computed import ALREADY_TRIED
from rocsteady.failures.difference import NAMES
from rocsteady.failures.ladder import RemedyChoice
from rocsteady.failures.memory_arguments import memory_arguments
from rocsteady.failures.symptoms import signal_name
from rocsteady.hangs.heartbeat_pages import SettingOutcome
from rocsteady.hangs.looking.collect import collect
from rocsteady.model import Failure, FailureKind, Next, Outcome
from rocsteady.run.attempt.attempt_end import AttemptEnd, is_failure
from rocsteady.run.attempt.symptoms import collect_symptoms
from rocsteady.run.checkpoints.checkpoints import Checkpoints
from rocsteady.run.checkpoints.resume import Checkpoint
from rocsteady.run.context import AttemptContext, HangPlace, RunSpec, Services, hang_place
from rocsteady.run.job.stages import seed_option
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.backoff import Backoff, in_detail
from rocsteady.run.recovery.option_stop import OptionStop
from rocsteady.run.recovery.planned_restart import FailureRhythm, PlannedRestart
from rocsteady.run.recovery.recovery import (
    THE_SCRIPTS_OWN,
    Decision,
    History,
    StartPoints,
    base_decision,
    leave,
    recover,
)
from rocsteady.run.recovery.strategy_history import StrategyHistory
from rocsteady.run.telling.deadline_monitor import DeadlineMonitor
from rocsteady.run.telling.events import Crashed
from rocsteady.run.telling.journal_records import JournalRecords
from rocsteady.store.redaction import hide_secrets
from rocsteady.wording import duration, moment, plural

CHECKPOINT_BACK = "checkpoint-back"
COSTS_ANNOUNCED = (3, 10, 30, 100, 300, 1000, 3000, 10000)  # failures in a row with progress
OUT_OF_MEMORY = "oom-"  # what the kinds of running out of memory begin with


class AttemptReview:
    """Looks back on each attempt of one run: names its failure, and decides what comes next."""

    def __init__(  # noqa: PLR0913 - what it looks at
        self,
        spec: RunSpec,
        options: RunOptions,
        services: Services,
        *,
        checkpoints: Checkpoints,
        records: JournalRecords,
        strategies: StrategyHistory,
        deadline_monitor: DeadlineMonitor,
        option_stop: OptionStop,
    ) -> None:
        self._spec, self._options, self._services = spec, options, services
        self._announcer, self._checkpoints, self._records = services.announcer, checkpoints, records
        self._strategies, self._deadline_monitor = strategies, deadline_monitor
        self._option_stop = option_stop
        self._lowering: set[str] = set()  # kinds for which arguments were named
        self.starts = StartPoints()
        self._save_after: int | None = None  # as it was last announced
        self._offered_seed = False
        self._rhythm = FailureRhythm()
        self._saves_on_request = False  # the script uses rocsteady_train.Loop
        self.is_routine = False  # the last attempt ended as announced
        self._unsaid: Crashed | None = None  # until it is known whether a wait says it
        self.hung: HangPlace | None = None  # where the last attempt did
        self.hangs_at: dict[str, int] = {}  # how often, by the place
        self.crashes = 0  # attempts that failed otherwise
        self._gpu_failed = False  # in the last attempt
        self.backoff = Backoff(
            spec.folder,
            services.environment,
            give_up_after=options.give_up_after,
            due=deadline_monitor.due,
            first_wait=options.timing.back_off,
            gone=lambda: checkpoints.gone,
        )

    def name(self, context: AttemptContext, end: AttemptEnd) -> Failure | None:
        """Name why an attempt failed; None if it did not, or if a fault of ours prevents it."""
        self._gpu_failed, self._unsaid = False, None
        self.hung = None
        if end.found is not None and end.found.verdict.place:
            self.hung = hang_place(end.found.verdict, end.last_step)
            self.hangs_at[self.hung.place] = self.hangs_at.get(self.hung.place, 0) + 1
        for applied in end.applied:
            if (
                applied.outcome is SettingOutcome.NO_EFFECT
            ):  # what was refused was announced at once
                self._announcer.say(
                    f"{NAMES.get(applied.setting, applied.setting)} had no effect in this script."
                )
        self._checkpoints.ended(end)
        self._saves_on_request = end.batch_split is not None
        self.is_routine = end.outcome is Outcome.PLANNED
        if not is_failure(end):
            self._strategies.ended(end, self._spec.run)
            if self.is_routine:
                self._rhythm.planned()
                self.backoff.failed(None, progressed=True, stepped=True)
            return None
        try:
            failure = self._named(context, end)
            if self._asks_ladder(end):
                self._strategies.failed(failure, end, self._spec.run)
            else:
                self._strategies.ended(end, self._spec.run)
            stepped = any(beat.step for beat in end.heartbeats)
            progressed = self._strategies.progressed
            self.backoff.failed(
                failure,
                progressed=progressed and _has_saved(end),
                stepped=stepped,
                unsaved=end.saved.failed,
            )
            strategy = self._strategies.strategy
            self._rhythm.failed(end, failure.kind, strategy, progressed=progressed)
            self.is_routine = len(self._rhythm.failures) > COSTS_ANNOUNCED[0]
            self._announce(failure, end)
        except Exception as error:  # noqa: BLE001 - a fault of ours costs the remedy, never the run
            self._announcer.bug("retrying without changes", error)
            return None
        return failure

    def decide(
        self,
        end: AttemptEnd,
        failure: Failure | None,
        *,
        attempts: int,
        started_from: Checkpoint | None,
    ) -> Decision:
        """Choose what comes next: the base decision, after a failure with a remedy or an option."""
        base = base_decision(
            end, self._options, attempts=attempts, can_resume=self._checkpoints.can_resume
        )
        if end.outcome is Outcome.LEFT:
            return self._next_option(base)
        if not is_failure(end):
            return base
        history = self._history(end, failure, attempts)
        if base.next is not Next.END:
            self._announce_starts(history, end)
        decision = None
        if failure is not None and self._asks_ladder(end):
            try:
                decision = recover(base, end, self._with_ladder(history, failure, end))
            except Exception as error:  # noqa: BLE001 - a fault of ours costs the remedy only
                self._announcer.bug("retrying without changes", error)
        decision = decision or recover(base, end, history)
        if failure is not None and decision.next is not Next.END and end.found is None:
            self.crashes += 1
        decision = self._announce_crash(decision, gave_up=bool(history.gave_up))
        self._act(decision, failure, started_from)
        if decision.next is not Next.END:
            self._announce_cost()
        return decision

    def _announce_crash(self, decision: Decision, *, gave_up: bool) -> Decision:
        """Announce a crash, unless the wait for its end does; one of the script's own ends it."""
        crash = self._unsaid
        if crash is None:
            return decision
        unknown = crash.failure == FailureKind.UNKNOWN and not self.crashes
        own = decision.next is Next.END and (crash.failure in THE_SCRIPTS_OWN or unknown)
        if own or not (gave_up or (decision.waits and self.backoff.waits)):
            self._announcer.show(msgspec.structs.replace(crash, own=own))
        if not own:
            return decision
        why = f"{crash.what}; not retried"
        return msgspec.structs.replace(decision, why=why, kind=crash.failure, is_announced=True)

    def _next_option(self, base: Decision) -> Decision:
        """Go on to the next option of the plan; the same again, if none is left."""
        for option in self._strategies.open_fallbacks()[:1]:
            choice = leave(option, "too slow")
            decision = msgspec.structs.replace(
                base, why=choice.why, remedy=choice.remedy, fallback=option.number, proposal=choice
            )
            self._strategies.take(choice, "")
            self._fell_to(option.number)
            return decision
        return base

    def _fell_to(self, number: int) -> None:
        self._deadline_monitor.other_option()
        self._option_stop.other_option(number)

    def gave_up(self, title: str, kind: str = "") -> Decision:
        """Return the end of a run that has waited for long enough."""
        limit = duration(self.backoff.limit.total_seconds())
        code = RETRY if self.backoff.in_allocation else PERSON_NEEDED
        why = f"{title}, and no progress for {limit}"
        return Decision(next=Next.END, why=why, code=code, kind=kind)

    def _named(self, context: AttemptContext, end: AttemptEnd) -> Failure:
        """Name a failure, keep its evidence, and announce it."""
        symptoms = collect_symptoms(context, self._services, end)
        stepped = any(beat.step for beat in end.heartbeats)
        failure = self.backoff.judged(
            self._strategies.name(symptoms), stepped=stepped, unsaved=end.saved.failed
        )
        blamed = end.found.blame.ranks if end.found and end.found.blame else ()
        if len(blamed) == 1:  # it may be on another host, whose stack is read there
            failure = msgspec.structs.replace(failure, rank=blamed[0].rank)
        self._gpu_failed = self._strategies.is_of_gpu(failure)
        number = context.number
        evidence = end.found.evidence.folder if end.found else self._keep(number, end)
        self._records.failed(number, failure, evidence)
        return failure

    def _asks_ladder(self, end: AttemptEnd) -> bool:
        return not self._options.observe and end.outcome is not Outcome.UNKILLABLE

    def _with_ladder(self, history: History, failure: Failure, end: AttemptEnd) -> History:
        """Add what the ladder and the options of the plan are chosen by."""
        situation = self._strategies.situation(
            failure,
            end,
            can_resume=self._checkpoints.can_resume,
            checkpoints=len(tuple(islice(self._checkpoints.whole(), 2))),
        )
        return msgspec.structs.replace(
            history,
            situation=situation,
            fallbacks=self._strategies.open_fallbacks(),
            blamed=self._strategies.is_option_to_blame(failure),
            needs=self._deadline_monitor.needs(),
            leaves=self._option_stop.failed(time.time()),
        )

    def _act(
        self, decision: Decision, failure: Failure | None, started_from: Checkpoint | None
    ) -> None:
        """Take up what was decided."""
        proposal = decision.proposal
        if proposal is None or failure is None:
            return
        self._strategies.take(proposal, failure.kind)
        if proposal.remedy == CHECKPOINT_BACK and started_from is not None:
            self._checkpoints.avoid.append(started_from)
        if decision.fallback:
            self._fell_to(decision.fallback)
        if decision.next is Next.END:
            self._announce_end(proposal)

    def _history(self, end: AttemptEnd, failure: Failure | None, attempts: int) -> History:
        """Return from where attempts started, and whether they got past it."""
        progressed, gave_up, code = self._strategies.progressed, "", PERSON_NEEDED
        if failure is None or not self._strategies.clears(failure):
            self.starts.ended(end.start, end.made, progressed=progressed, read=end.checkpoint_found)
        elif self.backoff.is_over:
            ended = self.gave_up(in_detail(failure))
            gave_up, code = ended.why, ended.code
        return History(
            attempts=attempts,
            gpu_failed=self._gpu_failed,
            progressed=progressed,
            is_stuck=self.starts.is_stuck,
            from_one_start=self.starts.attempts,
            gave_up=gave_up,
            give_up_code=code,
            save_after=self.starts.save_after,
            saves_earlier=self._save_after != self.starts.save_after,
        )

    def _announce_starts(self, history: History, end: AttemptEnd) -> None:
        self._save_after = history.save_after
        if history.saves_earlier or history.is_stuck:
            self._offer_seed()
        asked = end.batch_split is not None and history.save_after is not None
        if asked and history.saves_earlier and not history.is_stuck:
            self._announcer.say(
                "failed twice before a checkpoint; asking the script to save after"
                f" {history.save_after} steps."
            )

    def _announce_cost(self) -> None:
        """Announce what it costs to fail again and again, the third time and then ever more rarely.

        Attempts count in a row that got further: the run goes on, so that is all there is to say.
        """
        failures = self._rhythm.failures
        if len(failures) not in COSTS_ANNOUNCED:
            return
        steps = round(median(failure.made for failure in failures))
        seconds = median(failure.restart for failure in failures)
        ahead = self._deadline_monitor.forecast(time.time())
        ends = f"; done about {moment(ahead.at, now=time.time())}" if ahead else ""
        plan = self.planned_restart
        early = (
            f" Restarting earlier: with the save at {plural(plan.after, 'step')}." if plan else ""
        )
        self._announcer.say(
            f"fails about every {plural(steps, 'step')}; each restart costs"
            f" {duration(seconds)}{ends}.{early}"
        )

    @property
    def planned_restart(self) -> PlannedRestart | None:
        """When the next attempt is best restarted, before it fails; None: not before."""
        may = self._checkpoints.can_resume and not self._checkpoints.is_unproven
        if self._options.observe or self._services.hosts is not None or not may:
            return None
        return self._rhythm.plan(self._strategies.strategy, on_request=self._saves_on_request)

    def _offer_seed(self) -> None:
        """Name the option by which a fault that depends on the order of the data may be avoided."""
        job, folder = self._checkpoints.job, self._checkpoints.folder
        if not self._offered_seed and (option := seed_option(job.command, folder)):
            self._offered_seed = True
            self._announcer.say(
                f"if the data or its order causes this, another value of {option} may avoid it."
                " rocsteady does not change it on its own."
            )

    def _keep(self, number: int, end: AttemptEnd) -> str:
        """Keep what there is to know of a crash; "" where it cannot be kept."""
        records = self._spec.records
        try:
            return collect(
                records / f"evidence-{number}",
                pids=(),
                pages=None,
                log=records / f"attempt-{number}.log",
                since=end.began,
                attempt=f"attempt {number}",
                variables=self._services.known_variables,
                within=self._options.timing.evidence_within,
            ).folder
        except OSError:
            return ""

    def _announce(self, failure: Failure, end: AttemptEnd) -> None:
        """Announce a failure once, unless a hang was, or the decision tells how."""
        if end.found is not None:
            self._announcer.note(f"{failure.title} ({failure.kind}).")  # it was said: hung
            return
        crash = Crashed(
            what=_what(failure, end, in_full=self._strategies.clears(failure)),
            failure=failure.kind,
            place=failure.line or (failure.fingerprint.place if _is_own(failure) else ""),
            step=end.last_step,
            rank=failure.rank,
            lower=self._what_to_lower(failure.kind),
        )
        if self.is_routine or (self.backoff.repeats and self._strategies.clears(failure)):
            self._announcer.keep(crash)
        else:
            self._unsaid = crash

    def _what_to_lower(self, kind: str) -> tuple[tuple[str, int], ...]:
        """Return the arguments by which the script would need less memory, once a run."""
        if not kind.startswith(OUT_OF_MEMORY) or kind in self._lowering:
            return ()
        self._lowering.add(kind)
        return tuple(memory_arguments(self._checkpoints.job.command, kind))

    def _announce_end(self, choice: RemedyChoice) -> None:
        """Keep what was not tried, if this is the end."""
        if choice.strategy is not None:
            return
        for remedy, why in choice.skipped:
            if why != ALREADY_TRIED:
                self._announcer.note(f"not tried: {remedy}: {why}.")


def _has_saved(end: AttemptEnd) -> bool:
    """Return whether an attempt saved, unless that cannot be seen; the first need not have."""
    saves = len(end.saves) - bool(end.saved.failed)
    return saves > 0 or not end.start or not end.heartbeats


def _is_own(failure: Failure) -> bool:
    return failure.kind in THE_SCRIPTS_OWN


def _what(failure: Failure, end: AttemptEnd, *, in_full: bool) -> str:
    """Return what failed: the script's own words for its own error, else what it is called."""
    ended_by = end.exit.signal if end.exit else None
    code = end.exit.code if end.exit else None
    name = signal_name(ended_by) if ended_by else ""
    if failure.kind == FailureKind.SCRIPT_EXIT:
        return f"the script ended itself with code {code}"
    if failure.kind == FailureKind.INTERRUPTED:
        return f"somebody ended the script{f' ({name})' if name else ''}"
    if failure.kind == FailureKind.SCRIPT_ERROR:
        seen = hide_secrets(failure.seen[0]) if failure.seen else failure.title
        return seen.rstrip(".")
    if failure.kind == FailureKind.UNKNOWN:
        return f"killed by {name}" if name else f"exit code {code}"
    return (in_detail(failure) if in_full else failure.title).rstrip(".")
