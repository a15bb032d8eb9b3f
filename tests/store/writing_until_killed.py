"""A supervisor that writes as fast as it can, and says what it knows to be on disk.

Each line is one write(2), so what was said is what had happened: "+ N" after an intent was on disk
and before its intent, "- N" after its outcome was.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rocsteady.model import IntentKind, RunOutcome, RunState, Strategy
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.values import MessageRecord, Sample


def main(project: Path, state: Path, rounds: int) -> None:
    journal = Journal(find_place(project, state=state))
    run = journal.begin_run(("python", "train.py"), job={}, strategy=Strategy())
    os.write(1, f"= {run.id}\n".encode())
    for number in range(rounds):
        for entry in range(20):
            journal.record(MessageRecord(run=run.id, text=f"{number} {entry} " * 40, at=0.0))
        look = Sample(at=number * 7.0, step=number, verdict=RunState.HEALTHY, quiet=0.0)
        journal.progressed(run.id, 1, look)
        intent = journal.intend(IntentKind.START, str(number), run=run.id)
        os.write(1, f"+ {number}\n".encode())
        intent.end()
        os.write(1, f"- {number}\n".encode())
    journal.end_run(run, RunOutcome.DONE)
    journal.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
