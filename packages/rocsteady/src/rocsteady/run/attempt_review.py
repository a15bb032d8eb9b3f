"""After an attempt: say why it ended, keep the evidence, and choose what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import msgspec

from rocsteady.doctor.knowledge.failures import SCRIPT_ERROR, UNKNOWN
from rocsteady.failures.computed import ALREADY_TRIED
from rocsteady.failures.ladder import RemedyChoice
from rocsteady.failures.memory_arguments import memory_arguments
from rocsteady.failures.symptoms import Symptoms, signal_name
from rocsteady.hangs.collect import collect
from rocsteady.model import Failure, Next, Outcome
from rocsteady.run.announcer import Announcer
from rocsteady.run.attempt_end import AttemptEnd
from rocsteady.run.attempt_settings import Settings
from rocsteady.run.checkpoints import Checkpoints
from rocsteady.run.finish_forecast import Outlook
from rocsteady.run.job.resume import Checkpoint
from rocsteady.run.job.stages import seed_option
from rocsteady.run.journal_records import Records
from rocsteady.run.recovery import Choices, Decision, History, recover, without_remedies
from rocsteady.run.start_points import StartPoints
from rocsteady.run.strategy_history import StrategyHistory
from rocsteady.screens.text_page import RED
from rocsteady.store.redaction.redactor import hide_secrets
from rocsteady.store.values import Run

CHECKPOINT_BACK = "checkpoint-back"
OUT_OF_MEMORY = "oom-"  # what the kinds of running out of memory begin with


class AttemptReview:
    """Looks back on each attempt of one run."""

    def __init__(  # noqa: PLR0913 - each is said by name
        self,
        run: Run,
        *,
        checkpoints: Checkpoints,
        settings: Settings,
        announcer: Announcer,
        records: Records,
        course: StrategyHistory,
        outlook: Outlook,
        told: Mapping[str, str],  # the variables that evidence may hold
    ) -> None:
        self._run, self._checkpoints = run, checkpoints
        self._settings, self._announcer, self._records = settings, announcer, records
        self._course, self._outlook, self._told = course, outlook, told
        self._lowering: set[str] = set()  # kinds for which arguments were named
        self.starts = StartPoints()
        self._save_after: int | None = None  # as it was said
        self._offered = False  # another seed
        self._gpu_failed = False  # in the last attempt
        self.failure: Failure | None = None  # of the last attempt, once it has a name

    def decide(
        self,
        end: AttemptEnd,
        symptoms: Symptoms | None,
        *,
        number: int,
        attempts: int,
        went_on_from: Checkpoint | None,
    ) -> Decision:
        """Say why an attempt ended, and choose what comes next."""
        self.failure = None
        for each in end.applied:
            if each.outcome == "no effect":  # what was refused was said at once
                self._announcer.say(f"{each.setting} had no effect in this script.")
        self._checkpoints.ended(end)
        can_resume = self._checkpoints.can_resume
        choices = Choices(settings=self._settings, can_resume=can_resume)
        history = History(attempts=attempts, failed=symptoms is not None)
        if symptoms is None:
            self._course.ended(end, self._run)
            return recover(end, history, choices)
        failure, asked = None, False
        try:
            self.failure = failure = self._named(symptoms, end, number)
            asked = self._asks_ladder(failure, end)
            if asked:
                self._course.failed(failure, end, self._run)
            else:
                self._course.ended(end, self._run)
        except Exception as error:  # noqa: BLE001 - a fault of ours costs the remedy, never the run
            self._announcer.bug("retrying without changes", error)
            asked = False
        history = self._with_starts(history, end)
        again = without_remedies(
            end, number=attempts, can_resume=can_resume, settings=self._settings
        )
        if again.next is not Next.END:
            self._say_starts(history, end)
        decision = recover(end, history, choices)
        if asked and failure is not None:
            try:
                decision = self._remedied(end, failure, history, choices)
            except Exception as error:  # noqa: BLE001 - the same
                self._announcer.bug("retrying without changes", error)
        self._act(decision, failure, went_on_from)
        return decision

    def _named(self, symptoms: Symptoms, end: AttemptEnd, number: int) -> Failure:
        """Name a failure, keep its evidence, and say it."""
        self._gpu_failed = False
        failure = self._course.name(symptoms)
        self._gpu_failed = self._course.is_of_gpu(failure)
        evidence = end.found.evidence.folder if end.found else self._keep(number, end)
        self._records.failed(number, failure, evidence)
        self._tell(failure, end, None if symptoms.hung else symptoms.signal)
        return failure

    def _asks_ladder(self, failure: Failure, end: AttemptEnd) -> bool:
        if self._settings.observe or end.outcome is Outcome.UNKILLABLE:
            return False
        return self._settings.remedies or failure.kind == SCRIPT_ERROR

    def _remedied(
        self, end: AttemptEnd, failure: Failure, history: History, choices: Choices
    ) -> Decision:
        """Choose with the ladder and the options of the plan."""
        situation = self._course.situation(
            failure,
            end,
            can_resume=choices.can_resume,
            checkpoints=len(tuple(islice(self._checkpoints.whole(), 2))),
        )
        choices = msgspec.structs.replace(
            choices,
            fallbacks=self._course.open_fallbacks(),
            blamed=self._course.is_option_to_blame(failure),
            needs=self._outlook.needs(),
        )
        return recover(end, msgspec.structs.replace(history, situation=situation), choices)

    def _act(
        self, decision: Decision, failure: Failure | None, went_on_from: Checkpoint | None
    ) -> None:
        """Take up what was decided."""
        proposal = decision.proposal
        if proposal is None or failure is None:
            return
        self._course.take(proposal, failure)
        if proposal.remedy == CHECKPOINT_BACK and went_on_from is not None:
            self._checkpoints.avoid.append(went_on_from)
        if decision.fallback:
            self._outlook.other_option()
        if decision.next is Next.END:
            self._tell_end(proposal)

    def _with_starts(self, history: History, end: AttemptEnd) -> History:
        """Add from where attempts started, and whether they got past it."""
        self.starts.ended(end.start, end.made, progressed=self._course.progressed)
        return msgspec.structs.replace(
            history,
            gpu_failed=self._gpu_failed,
            progressed=self._course.progressed,
            is_stuck=self.starts.is_stuck,
            save_after=self.starts.save_after,
            saves_earlier=self._save_after != self.starts.save_after,
        )

    def _say_starts(self, history: History, end: AttemptEnd) -> None:
        self._save_after = history.save_after
        if history.saves_earlier or history.is_stuck:
            self._offer_seed()
        asked = end.batch_split is not None and history.save_after is not None
        if asked and history.saves_earlier and not history.is_stuck:
            self._announcer.say(
                "two attempts failed before the next checkpoint; rocsteady asks the script to save"
                f" after {history.save_after} steps."
            )

    def _offer_seed(self) -> None:
        """Name the option by which a fault that depends on the order of the data may be avoided."""
        job, folder = self._checkpoints.job, self._checkpoints.folder
        if not self._offered and (option := seed_option(job.command, folder)):
            self._offered = True
            self._announcer.say(
                f"if the data or its order causes this, another value of {option} may avoid it."
                " rocsteady does not change it on its own."
            )

    def _keep(self, number: int, end: AttemptEnd) -> str:
        """Keep what there is to know of a crash; "" where it cannot be kept."""
        records = Path(self._run.folder)
        try:
            return collect(
                records / f"evidence-{number}",
                pids=(),
                pages=None,
                log=records / f"attempt-{number}.log",
                since=end.began,
                attempt=f"attempt {number}",
                variables=self._told,
                within=self._settings.evidence_within,
            ).folder
        except OSError:
            return ""

    def _tell(self, failure: Failure, end: AttemptEnd, ended_by: int | None) -> None:
        step = f" at step {end.last_step:,}" if end.last_step else ""
        if failure.kind == SCRIPT_ERROR:
            seen = hide_secrets(failure.seen[0]) if failure.seen else failure.title
            place = failure.line or failure.fingerprint.place
            at = f" ({place})" if place else ""
            self._announcer.say(f"error in the script: {seen}{at}.", style=RED)
        elif failure.kind != UNKNOWN:
            at = f", in {failure.line}" if failure.line else ""
            self._announcer.say(f"{failure.title}{step}{at} ({failure.kind}).", style=RED)
            self._tell_what_to_lower(failure.kind)
        elif ended_by is not None:
            name = signal_name(ended_by)
            self._announcer.say(f"the process was terminated by {name}{step}.", style=RED)

    def _tell_what_to_lower(self, kind: str) -> None:
        """Name the arguments by which the script would need less memory, once a run."""
        if not kind.startswith(OUT_OF_MEMORY) or kind in self._lowering:
            return
        self._lowering.add(kind)
        found = memory_arguments(self._checkpoints.job.command, kind)
        if found:
            names = " or ".join(f"{name} (now {value:,})" for name, value in found[:2])
            self._announcer.say(f"to use less memory, lower {names}.")

    def _tell_end(self, step: RemedyChoice) -> None:
        """Say what was not tried, and what a person can do, if this is the end."""
        if step.strategy is not None:
            return
        untried = [each for each in step.skipped if each[1] != ALREADY_TRIED]
        for remedy, why in untried:
            self._announcer.note(f"not tried: {remedy}: {why}.")
        if untried:
            self._announcer.say(f"not tried: {', '.join(name for name, _ in untried)}.")
        if step.person is not None:
            self._announcer.say(" ".join([step.person.text, *step.person.commands]))
