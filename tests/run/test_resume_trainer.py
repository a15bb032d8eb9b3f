"""--resume-trainer is remembered for a command, and counts for a run that is continued."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from rocsteady.cli.run import _job
from rocsteady.model import Strategy
from rocsteady.run.job.values import Job
from rocsteady.run.options import RunOptions
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place

COMMAND = (sys.executable, "train.py")


def test_it_is_remembered_by_the_account_that_chose_it(tmp_path: Path) -> None:
    place = find_place(tmp_path, state=tmp_path / "state")
    with closing(Journal(place)) as journal:

        def job(**options: object) -> Job:
            return _job(tmp_path, RunOptions(**options), journal)  # type: ignore[arg-type] # as typed

        run = journal.begin_run(COMMAND, job=Job(command=COMMAND), strategy=Strategy(), name="one")
        assert not job(command=COMMAND).resume_trainer
        assert job(command=COMMAND, resume_trainer=True).resume_trainer
        assert job(resume="one", resume_trainer=True).resume_trainer

        chosen = Job(command=COMMAND, resume_trainer=True)
        journal.end_run(run, run.outcome)
        journal.begin_run(COMMAND, job=chosen, strategy=Strategy(), name="two")
        assert job(command=COMMAND).resume_trainer
        assert not job(command=(*COMMAND, "--small")).resume_trainer

        journal.flush()
        with closing(sqlite3.connect(place.database)) as connection, connection:
            connection.execute("UPDATE runs SET started = 1.0 WHERE name = 'two'")
        assert not job(command=COMMAND).resume_trainer  # somebody wrote this
