"""After an attempt: say why it ended, keep the evidence, and choose what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from rocsteady.evidence.collect import collect
from rocsteady.failures.symptoms import Symptoms
from rocsteady.journal.values import Run
from rocsteady.knowledge.failures import SCRIPT_ERROR, UNKNOWN
from rocsteady.remedies.ladder import Step
from rocsteady.remedies.memory_arguments import memory_arguments
from rocsteady.supervisor.announce import Announcer
from rocsteady.supervisor.course import Course
from rocsteady.supervisor.decision import Decision, Next, after_climbing, decide
from rocsteady.supervisor.job import Job
from rocsteady.supervisor.outcome import AttemptEnd, Outcome
from rocsteady.supervisor.outlook import Outlook
from rocsteady.supervisor.records import Records
from rocsteady.supervisor.resume import Checkpoint, whole_checkpoints
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.ways import WAY
from rocsteady.vocabulary import Failure

CHECKPOINT_BACK = "checkpoint-back"
OUT_OF_MEMORY = "oom-"  # what the kinds of running out of memory begin with


class Aftermath:
    """Looks back on each attempt of one run."""

    def __init__(  # noqa: PLR0913 - each is said by name
        self,
        job: Job,
        run: Run,
        *,
        folder: Path,
        settings: Settings,
        announcer: Announcer,
        records: Records,
        course: Course,
        outlook: Outlook,
        told: Mapping[str, str],  # the variables that evidence may hold
    ) -> None:
        self.job = job  # it becomes one that can resume when its script says so
        self._run, self._folder = run, folder
        self._settings, self._announcer, self._records = settings, announcer, records
        self._course, self._outlook, self._told = course, outlook, told
        self.avoid: list[Checkpoint] = []  # that did not lead on
        self._lowering: set[str] = set()  # kinds for which arguments were named

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
        can_resume = self.job.resume is not None
        plain = decide(end, number=attempts, can_resume=can_resume, settings=self._settings)
        for each in end.applied:
            if each.outcome == "no effect":  # what was refused was said at once
                self._announcer.say(f"{each.setting} had no effect in this script.")
        if symptoms is None:
            self._course.ended(end, self._run)
            return plain
        try:
            failure = self._course.name(symptoms)
            evidence = end.found.evidence.folder if end.found else self._keep(number, end)
            self._records.failed(number, failure, evidence)
            self._tell(failure, end)
            own_error = failure.kind == SCRIPT_ERROR
            plainly = self._settings.observe or end.outcome is Outcome.UNKILLABLE
            if plainly or not (self._settings.remedies or own_error):
                return plain
            step = self._course.failed(
                failure,
                end,
                self._run,
                can_resume=can_resume,
                checkpoints=len(tuple(islice(self._checkpoints(), 2))),
                needs=None if plain.next is Next.END else self._outlook.needs(),
            )
        except Exception as error:  # noqa: BLE001 - a fault of ours costs the remedy, never the run
            self._announcer.say(
                f"this is a bug in rocsteady; nothing is changed: {type(error).__name__}: {error}"
            )
            return plain
        self._tell_end(step)
        if step.remedy == CHECKPOINT_BACK and went_on_from is not None:
            self.avoid.append(went_on_from)
        decision = after_climbing(plain, step, kind=failure.kind, attempts=attempts)
        if decision.remedy.startswith(WAY):
            self._outlook.other_way()
        return decision

    def _checkpoints(self) -> Iterator[Checkpoint]:
        return whole_checkpoints(self.job, self._folder, avoid=self.avoid)

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
        found = memory_arguments(self.job.command, kind)
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
