"""A batch file for Slurm: it hands the job back to the queue when that may go on by itself."""

from __future__ import annotations

import math
import re

from rocsteady.exit_codes import PERSON_NEEDED, RETRY
from rocsteady.exports.export import Export, slug, torch_release
from rocsteady.exports.file_header import comments, of_schedulers, remarks
from rocsteady.exports.shell import ENVIRONMENT, environment, install, job_line, rendezvous
from rocsteady.exports.torchrun_command import HostCount, torchrun_hosts

TURN = 86_400  # seconds: one day is within the limit of most partitions
LEAST = 600
BEFORE_THE_END = 300  # seconds that a checkpoint and the end of the processes may take
MOST_TURNS = 100
FACTS = "options as in sbatch(1) of Slurm 22.05, exit codes as in `rocsteady run --help`."
PYTORCH = "https://download.pytorch.org/whl/rocm"
ON_PYTORCH_ORG = r"\d+\.\d+|6\.2\.4"  # AMD's own wheels name all three parts

# Job control, so that a signal for the run does not reach only this shell. Slurm sends SIGTERM
# when a user cancels the job: that must not bring it back.
WRAPPER = """\
set -m
out_of_time=
{run} &
run=$!
trap 'out_of_time=yes; {stop}' USR1
trap '{stop}' TERM
wait "$run"
code=$?
while kill -0 "$run" 2>/dev/null; do # a signal ended the wait, not the run
    wait "$run"
    code=$?
done
{out_of_time}\
if [ "$code" -eq {retry} ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {turns} ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""
OUT_OF_TIME = """\
if [ -n "$out_of_time" ] && [ "$code" -ne 0 ] && [ "$code" -ne {person} ]; then
    echo "rocsteady: out of time; the run ended with $code and can resume"
    code={retry}
fi
"""
TOO_LATE = """\
if [ -n "$out_of_time" ]; then
    echo "rocsteady: out of time; the run ended with $code and cannot resume"
fi
"""
STOP = 'kill -TERM "$run"'
STOP_STEPS = 'scancel --signal=TERM "$SLURM_JOB_ID"'  # reaches every host, and not this shell
FIRST_HOST = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


def sbatch(export: Export) -> str:
    """Write the file."""
    name = slug(export.name)
    hosts = torchrun_hosts(export.command) or HostCount(1, 1)
    options = {
        "job-name": name,
        "nodes": _nodes(hosts),
        "ntasks-per-node": "1",
        "gres": f"gpu:{export.gpus}",
        "time": _time(_seconds(export)),
        "signal": f"B:USR1@{BEFORE_THE_END}",
        "open-mode": "append",
        "output": f"{name}-%j.log",
    }
    head = remarks(export, f"A batch file for Slurm (sbatch {name}.sbatch).", FACTS)
    lines = [
        "#!/bin/bash",
        *comments([*head, *of_schedulers(export), *_notes(export)]),
        *(f"#SBATCH --{option}={value}" for option, value in options.items()),
        "#SBATCH --requeue",
        "",
        f"if [ -f {ENVIRONMENT}/bin/activate ]; then",
        "    # shellcheck source=/dev/null",
        f"    . {ENVIRONMENT}/bin/activate",
        "fi",
        *environment(export),
        *rendezvous(export, FIRST_HOST, "$SLURM_JOB_ID"),
        "",
    ]
    return "\n".join(lines) + _wrapper(export, several=hosts.most > 1)


def _wrapper(export: Export, *, several: bool) -> str:
    """Requeue on 75, which is also what a run gets that the time was too short for."""
    out_of_time = OUT_OF_TIME.format(retry=RETRY, person=PERSON_NEEDED)
    return WRAPPER.format(
        run=f"srun {job_line(export)}" if several else job_line(export),
        stop=STOP_STEPS if several else STOP,
        out_of_time=out_of_time if export.checkpoints else TOO_LATE,
        retry=RETRY,
        turns=MOST_TURNS,
    )


def _nodes(hosts: HostCount) -> str:
    return f"{hosts.least}-{hosts.most}" if hosts.least < hosts.most else str(hosts.most)


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
        *(f"    {line}" for line in install(export, ENVIRONMENT)),
        _about_time(export),
        ("Adapt the GPU name in --gres, the partition and the account to your cluster."),
    ]


def _about_time(export: Export) -> str:
    if export.checkpoints:
        return (
            f"The job runs in slices of --time; {BEFORE_THE_END} s before the end of a slice,"
            " it saves, stops and is requeued. Exit code 75 also requeues it; 76 needs a person."
        )
    return (
        "--time must cover the whole job, because it cannot resume. Exit code 75 requeues it;"
        " 76 needs a person."
    )
