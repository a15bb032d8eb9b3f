"""What earlier runs of a job have left behind, written as they write it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from rocsteady.model import (
    Certainty,
    Failure,
    Fingerprint,
    IntentKind,
    Outcome,
    RunOutcome,
    Strategy,
)
from rocsteady.probe.sandbox_run import name_for
from rocsteady.run.job import FILE
from rocsteady.run.job.job_file import read_job
from rocsteady.store.identity import script_fingerprint, this_process
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import AttemptRecord, Helped, NamedFailure

DAY = 86_400.0


class Earlier(NamedTuple):
    """One attempt of some days ago: how it ran, how far it came, what ended it."""

    steps: int
    seconds: float
    failure: str = ""
    strategy: Strategy = Strategy()
    remedy: str = ""  # that led to it, and with which it went on


def leave_runs(folder: Path, state: Path, *attempts: Earlier) -> None:
    """Leave runs of one attempt each."""
    job = read_job(folder / FILE).job
    place = find_place(folder, state=state)
    journal, memory, began = Journal(place), Memory(place), time.time() - 3 * DAY
    for number, each in enumerate(attempts, start=1):
        run = journal.begin_run(job.command, job=job, strategy=each.strategy)
        journal.record(
            AttemptRecord(
                run=run.id,
                number=1,
                strategy=each.strategy,
                boot_id=journal.here.boot_id,
                started=began + number,
                ended=began + number + each.seconds,
                outcome=Outcome.HUNG if "hang" in each.failure else Outcome.BY_ITSELF,
                first_step=0,
                last_step=each.steps,
            )
        )
        if each.failure:
            named = Failure(
                kind=each.failure,
                title=each.failure,
                words="",
                certainty=Certainty.LIKELY,
                fingerprint=Fingerprint(kind=each.failure, step=each.steps),
                seen=(),
            )
            journal.record(
                NamedFailure(run=run.id, attempt=1, failure=named, evidence="", at=began + number)
            )
        if each.remedy:
            script = script_fingerprint(job.command, str(folder))
            memory.helped(
                Helped(
                    machine=journal.here.machine,
                    script=script,
                    failure=attempts[0].failure,
                    remedy=each.remedy,
                    run=run.name,
                    at=began + number,
                )
            )
        journal.end_run(run, RunOutcome.STOPPED)
    assert journal.close()
    assert memory.close()


def leave_death(folder: Path, state: Path, *, in_trial: tuple[str, ...] = ()) -> None:
    """Leave a run as a machine leaves it that goes down: an intent of another boot, no outcome.

    ``in_trial`` is the command of a trial in place of the run.
    """
    job = read_job(folder / FILE).job
    here = replace(this_process(), boot_id="before", process="")
    root = state / "plans" / name_for(folder) / "trials" if in_trial else folder
    root.mkdir(parents=True, exist_ok=True)
    journal = Journal(find_place(root, state=state), here=here)
    command = in_trial or job.command
    run = journal.begin_run(command, job=job, strategy=Strategy())
    journal.record(
        AttemptRecord(
            run=run.id, number=1, strategy=Strategy(), boot_id="before", started=time.time() - DAY
        )
    )
    journal.intend(IntentKind.START, "attempt 1", run=run.id, attempt=1)
    assert journal.close()
