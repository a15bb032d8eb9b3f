"""After an attempt: say why it ended, keep the evidence, and choose what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import msgspec

from rocsteady.evidence.collect import collect
from rocsteady.failures.symptoms import Symptoms
from rocsteady.job.arguments import seed_option
from rocsteady.job.resume import Checkpoint
from rocsteady.journal.values import FALLBACK, Run
from rocsteady.knowledge.failures import SCRIPT_ERROR, UNKNOWN
from rocsteady.remedies.ladder import Step
from rocsteady.remedies.memory_arguments import memory_arguments
from rocsteady.supervisor.announcer import Announcer
from rocsteady.supervisor.attempt_end import AttemptEnd, Outcome
from rocsteady.supervisor.checkpoints import Checkpoints
from rocsteady.supervisor.course import Course
from rocsteady.supervisor.decision import (
    PERSON_NEEDED,
    Decision,
    Next,
    after_climbing,
    decide,
)
from rocsteady.supervisor.outlook import Outlook
from rocsteady.supervisor.records import Records
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.start_points import MOST, Starts
from rocsteady.vocabulary import Failure

CHECKPOINT_BACK = "checkpoint-back"
OUT_OF_MEMORY = "oom-"  # what the kinds of running out of memory begin with


class Aftermath:
    """Looks back on each attempt of one run."""

    def __init__(  # noqa: PLR0913 - each is said by name
        self,
        run: Run,
        *,
        checkpoints: Checkpoints,
        settings: Settings,
        announcer: Announcer,
        records: Records,
        course: Course,
        outlook: Outlook,
        told: Mapping[str, str],  # the variables that evidence may hold
    ) -> None:
        self._run, self._checkpoints = run, checkpoints
        self._settings, self._announcer, self._records = settings, announcer, records
        self._course, self._outlook, self._told = course, outlook, told
        self._lowering: set[str] = set()  # kinds for which arguments were named
        self.starts = Starts()
        self._save_after: int | None = None  # as it was said
        self._offered = False  # another seed
        self._gpu_failed = False  # in the last attempt
        self._last: Step | None = None  # what the ladder said to it

    def decide(
        self,
        end: AttemptEnd,
        symptoms: Symptoms | None,
        *,
        number: int,
        attempts: int,
        went_on_from: Checkpoint | None,
    ) -> Decision:
        """Choose what comes next; after a failure the ladder is asked."""
        can_resume = self._checkpoints.job.resume is not None
        plain = decide(end, number=attempts, can_resume=can_resume, settings=self._settings)
        for each in end.applied:
            if each.outcome == "no effect":  # what was refused was said at once
                self._announcer.say(f"{each.setting} had no effect in this script.")
        if symptoms is None:
            self._course.ended(end, self._run)
            return plain
        decision = self._after_failure(
            end, symptoms, plain, number=number, attempts=attempts, went_on_from=went_on_from
        )
        self.starts.ended(end.start, end.made, progressed=self._course.progressed)
        decision = self._from_same_start(decision, plain, end)
        if self._last is not None and decision.next is Next.END:
            self._tell_end(self._last)
        return msgspec.structs.replace(decision, gpu_failed=self._gpu_failed)

    def _from_same_start(self, decision: Decision, plain: Decision, end: AttemptEnd) -> Decision:
        """Get past a checkpoint by saving earlier, or give up on it, whatever the ladder says."""
        if plain.next is Next.END:
            return decision
        saves_earlier = self._save_after != self.starts.save_after
        self._save_after = self.starts.save_after
        if saves_earlier or self.starts.is_stuck:
            self._offer_seed()
        if self.starts.is_stuck:
            why = f"{MOST} attempts started from the same checkpoint, and none got past it"
            return Decision(next=Next.END, why=why, code=PERSON_NEEDED)
        if end.parts is None or self._save_after is None:
            return decision
        if saves_earlier:
            self._announcer.say(
                "two attempts from the same checkpoint ended before the next one: the script is"
                f" asked to save after {self._save_after} steps."
            )
        exhausted = self._last is not None and self._last.exhausted
        if exhausted and (saves_earlier or self._course.progressed):
            why = "saving earlier may get it past where it failed"
            return msgspec.structs.replace(plain, why=why)
        return decision

    def _offer_seed(self) -> None:
        """Name the option by which a fault that depends on the order of the data may be avoided."""
        job, folder = self._checkpoints.job, self._checkpoints.folder
        if not self._offered and (option := seed_option(job.command, folder)):
            self._offered = True
            self._announcer.say(
                f"if this comes from the data or its order, another value of {option} may get past"
                " it. rocsteady does not change it by itself."
            )

    def _after_failure(  # noqa: PLR0913 - each is said by name
        self,
        end: AttemptEnd,
        symptoms: Symptoms,
        plain: Decision,
        *,
        number: int,
        attempts: int,
        went_on_from: Checkpoint | None,
    ) -> Decision:
        """Name the failure and ask the ladder."""
        self._gpu_failed, self._last = False, None
        can_resume = self._checkpoints.job.resume is not None
        try:
            failure = self._course.name(symptoms)
            self._gpu_failed = self._course.is_of_gpu(failure)
            evidence = end.found.evidence.folder if end.found else self._keep(number, end)
            self._records.failed(number, failure, evidence)
            self._tell(failure, end)
            own_error = failure.kind == SCRIPT_ERROR
            plainly = self._settings.observe or end.outcome is Outcome.UNKILLABLE
            if plainly or not (self._settings.remedies or own_error):
                self._course.ended(end, self._run)
                return plain
            step = self._course.failed(
                failure,
                end,
                self._run,
                can_resume=can_resume,
                checkpoints=len(tuple(islice(self._checkpoints.whole(), 2))),
                needs=None if plain.next is Next.END else self._outlook.needs(),
            )
        except Exception as error:  # noqa: BLE001 - a fault of ours costs the remedy, never the run
            self._announcer.say(
                f"this is a bug in rocsteady; nothing is changed: {type(error).__name__}: {error}"
            )
            return plain
        self._last = step
        if step.remedy == CHECKPOINT_BACK and went_on_from is not None:
            self._checkpoints.avoid.append(went_on_from)
        decision = after_climbing(plain, step, kind=failure.kind, attempts=attempts)
        if decision.remedy.startswith(FALLBACK):
            self._outlook.other_way()
        return decision

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

    def _tell(self, failure: Failure, end: AttemptEnd) -> None:
        if failure.kind == SCRIPT_ERROR:
            seen = failure.seen[0] if failure.seen else failure.title
            at = f", at {failure.fingerprint.place}" if failure.fingerprint.place else ""
            self._announcer.say(f"error in the script: {seen}{at}.")
        elif failure.kind != UNKNOWN:
            at = f" at step {end.last_step:,}" if end.last_step else ""
            at += f", in {failure.line}" if failure.line else ""
            self._announcer.say(f"{failure.title}{at} ({failure.kind}).")
            self._tell_what_to_lower(failure.kind)

    def _tell_what_to_lower(self, kind: str) -> None:
        """Name the arguments by which the script would need less memory, once a run."""
        if not kind.startswith(OUT_OF_MEMORY) or kind in self._lowering:
            return
        self._lowering.add(kind)
        found = memory_arguments(self._checkpoints.job.command, kind)
        if found:
            names = " or ".join(f"{name} (now {value:,})" for name, value in found[:2])
            self._announcer.say(f"to use less memory, lower {names}.")

    def _tell_end(self, step: Step) -> None:
        """Say what was not tried, and what a person can do, if this is the end."""
        if step.strategy is not None:
            return
        for remedy, why in step.passed_over:
            self._announcer.note(f"not tried: {remedy}: {why}.")
        if step.passed_over:
            self._announcer.say(f"not tried: {', '.join(name for name, _ in step.passed_over)}.")
        if step.person is not None:
            self._announcer.say(" ".join([step.person.text, *step.person.commands]))
