"""``rocsteady`` with little patience, on a machine that was recorded: it has GPUs, this has none.

python plan_elsewhere.py RECORDING TRIALS plan ...

TRIALS is a file that keeps what came of each trial: a plan for another deadline, or the same one as
JSON, then rests on the same trials.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import hurried
import msgspec
from msgspec.structs import replace

from rocsteady.cli import plan
from rocsteady.cli.main import main
from rocsteady.doctor.machine import machine
from rocsteady.doctor.machine.recording import RecordedRoot, read_recording
from rocsteady.model import Strategy
from rocsteady.plan import trials
from rocsteady.plan.trials import TrialKind, TrialResult
from rocsteady.run.job.values import Job
from rocsteady.run.options import Timing

SOON = timedelta(seconds=5)
PATIENCE = replace(hurried.PATIENCE, start_after=SOON, seldom_after=SOON)
STARTING = 16.0  # seconds that a trial may take to start


class KeptTrials(trials.PlanTrials):
    """Makes each trial once."""

    file: Path

    def run(self, job: Job, strategy: Strategy, kind: TrialKind) -> tuple[TrialResult, ...]:
        """Return what came of it, now or before."""
        kept = json.loads(self.file.read_text()) if self.file.exists() else {}
        name = f"{job.command} {strategy} {kind is TrialKind.COMPARISON}"
        if name not in kept:
            made = super().run(job, strategy, kind)
            kept[name] = msgspec.to_builtins(made)
            self.file.write_text(json.dumps(kept))
        return msgspec.convert(kept[name], tuple[TrialResult, ...])


if __name__ == "__main__":
    recording = read_recording(Path(sys.argv.pop(1)))
    KeptTrials.file = Path(sys.argv.pop(1))
    for module, name, value in (
        (machine, "DiskRoot", lambda **_: RecordedRoot(recording)),
        (trials, "Timing", partial(Timing, patience=PATIENCE)),
        (trials, "STARTING", STARTING),
        (plan, "PlanTrials", KeptTrials),
    ):
        setattr(module, name, value)
    main()
