"""A batch file for Slurm: it hands the job back to the queue when that may go on by itself."""

from __future__ import annotations

import math
import re

from rocsteady.exports.export import Export, slug, torch_release
from rocsteady.exports.remarks import comments, remarks
from rocsteady.exports.shell import ENVIRONMENT, environment, install, run_line

TURN = 86_400  # seconds: one day is within the limit of most partitions
LEAST = 600
BEFORE_THE_END = 300  # seconds that a checkpoint and the end of the processes may take
MOST_TURNS = 100
FACTS = "options as in sbatch(1) of Slurm 22.05, exit codes as in `rocsteady run --help`."
PYTORCH = "https://download.pytorch.org/whl/rocm"
ON_PYTORCH_ORG = r"\d+\.\d+|6\.2\.4"  # AMD's own wheels name all three parts

# Job control, so that a signal for the run does not reach only this shell.
WRAPPER = """\
set -m
out_of_time=
{run} &
run=$!
trap 'out_of_time=yes; kill -TERM "$run"' TERM
wait "$run"
code=$?
while kill -0 "$run" 2>/dev/null; do # a signal ended the wait, not the run
    wait "$run"
    code=$?
done
if [ -n "$out_of_time" ]; then
    echo "rocsteady: Slurm asked for the end; the run ended with $code"
fi
"""
AGAIN = """\
if {when} && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {turns} ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""
MAY_BE_RETRIED = '[ "$code" -eq 75 ]'
TIME_WAS_UP = '{ [ -n "$out_of_time" ] && [ "$code" -ne 0 ]; }'


def sbatch(export: Export) -> str:
    """Write the file."""
    name = slug(export.name)
    options = {
        "job-name": name,
        "nodes": "1",
        "ntasks": "1",
        "gres": f"gpu:{export.gpus}",
        "time": _time(_seconds(export)),
        "signal": f"B:TERM@{BEFORE_THE_END}",
        "open-mode": "append",
        "output": f"{name}-%j.log",
    }
    head = remarks(export, f"A batch file for Slurm (sbatch {name}.sbatch).", FACTS)
    lines = [
        "#!/bin/bash",
        *comments([*head, *_notes(export)]),
        *(f"#SBATCH --{option}={value}" for option, value in options.items()),
        "#SBATCH --requeue",
        "",
        f"if [ -f {ENVIRONMENT}/bin/activate ]; then",
        "    # shellcheck source=/dev/null",
        f"    . {ENVIRONMENT}/bin/activate",
        "fi",
        *environment(export),
        "",
    ]
    return "\n".join(lines) + WRAPPER.format(run=run_line(export)) + _again(export)


def _again(export: Export) -> str:
    """Requeue on 75; where a checkpoint is gone on from, also when the time was up."""
    when = MAY_BE_RETRIED
    if export.checkpoints:
        when = f"{{ {MAY_BE_RETRIED} || {TIME_WAS_UP}; }}"
    return AGAIN.format(when=when, turns=MOST_TURNS)


def _seconds(export: Export) -> float:
    """Return for how long to ask: a turn, where several make up the whole; else until it is due."""
    if export.due is None or (export.checkpoints and export.due > TURN):
        return TURN
    return max(export.due, LEAST)


def _time(seconds: float) -> str:
    minutes = math.floor(seconds / 60)
    days, rest = divmod(minutes, 1440)
    return f"{days}-{rest // 60:02}:{rest % 60:02}:00"


def _notes(export: Export) -> list[str]:
    torch = f"torch=={torch_release(export.torch)}" if export.torch else "torch"
    rocm = export.rocm if re.fullmatch(ON_PYTORCH_ORG, export.rocm) else "X.Y"
    return [
        (
            "Submit it from the project folder, which the compute nodes must be able to read. Do"
            " this once first:"
        ),
        f"    python3 -m venv {ENVIRONMENT} && . {ENVIRONMENT}/bin/activate",
        f"    python3 -m pip install {torch} --index-url {PYTORCH}{rocm}",
        *(f"    {line}" for line in install(export)),
        _about_time(export),
        ("Adapt the GPU name in --gres, the partition and the account to your cluster."),
    ]


def _about_time(export: Export) -> str:
    if export.checkpoints:
        return (
            f"The job runs in slices of --time; {BEFORE_THE_END} s before the end of a slice,"
            " it stops and is requeued. Exit code 75 also requeues it; 76 needs a person."
        )
    return (
        "--time must cover the whole job, because it cannot resume. Exit code 75 requeues it;"
        " 76 needs a person."
    )
