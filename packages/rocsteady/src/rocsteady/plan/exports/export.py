"""What is to be done elsewhere, as a value: all that a file for another place is made of."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath, PureWindowsPath

import msgspec

from rocsteady.model import Value
from rocsteady.plan.exports.torchrun_command import several_hosts, without_meeting

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
LONGEST = 40  # characters of a name; SkyPilot, Slurm and Kubernetes all take it


class Export(Value, frozen=True, kw_only=True):
    """A job, and the option of the plan that is to be taken with it."""

    name: str  # of the project
    command: tuple[str, ...]
    written: str  # the day: 2026-11-15
    folder: str = ""  # the project's own, here
    checkpoints: tuple[str, ...] = ()  # patterns, from the project's folder
    resume: tuple[str, ...] = ()  # arguments with which the command goes on
    outputs: tuple[str, ...] = ()  # patterns of the files that a job that is done has written
    requirements: str = ""  # a file for pip, from the project's folder; "": there is none
    gfx: str = ""  # of the GPU that it is for: gfx1100
    gpu: str = ""  # its name
    gpus: int = 1
    torch: str = ""  # as it is installed: 2.8.0+rocm6.4, or 2.8.0; "": not known
    rocm: str = ""  # that this torch is built for: 6.4
    deadline: str = ""  # in words
    due: float | None = None  # seconds from the day it is written to the deadline
    infra: str = ""  # where SkyPilot takes the GPU from: runpod, vast, kubernetes
    accelerator: str = ""  # its name there: RTX4090, MI300X
    max_hourly_cost: float | None = None  # dollars
    bucket: str = ""  # s3://..., where the model may be put
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    unset: tuple[str, ...] = ()  # variables that must not be set
    setup: tuple[float, float] | None = None  # minutes of work by hand
    notes: tuple[str, ...] = ()  # sentences that whoever sets it up should know
    rocsteady: str = "./rocsteady"  # what pip installs it from; there is no release yet


def slug(name: str) -> str:
    """Give a name that each of these systems takes."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(words)[:LONGEST].strip("-") or "training"


def torch_release(torch: str) -> str:
    """Return a version of torch without what it was built for: 2.8.0 of 2.8.0+rocm6.4."""
    return torch.partition("+")[0]


def command_elsewhere(command: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out where the program lies here: /home/me/venv/bin/python is python3 elsewhere."""
    program, *arguments = command
    if _DRIVE.match(program) or program.startswith("\\\\"):
        program = PureWindowsPath(program).name
    elif program.startswith("/"):
        program = PurePosixPath(program).name
    program = re.sub(r"\.exe$", "", program, flags=re.IGNORECASE)
    is_python = re.fullmatch(r"py|python[0-9.]*", program)
    return ("python3" if is_python else program, *arguments)


def run_command(export: Export) -> str:
    """Return the command that does the job, for a person to start."""
    return shlex.join(("rocsteady", "run", "--yes", "--", *command_elsewhere(export.command)))


def job_command(export: Export) -> str:
    """Return the command that does the job, for a scheduler, which starts it again and again.

    On several hosts torchrun starts the watchers itself.
    """
    command = command_elsewhere(export.command)
    if several_hosts(command):
        return shlex.join(without_meeting(command))
    resumes = ("--resume", "auto") if export.checkpoints else ()
    return shlex.join(("rocsteady", "run", "--yes", *resumes, "--", *command))


def folders(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders below the project that files of these patterns lie in.

    "." for files in the project's own. What lies outside of it is left out.
    """
    found = set()
    for pattern in patterns:
        parts = PurePosixPath(pattern.replace("\\", "/")).parts[:-1]
        fixed = []
        for part in parts:
            if set("*?[") & set(part):
                break
            fixed.append(part)
        if not {"..", "/"} & set(fixed) and not _DRIVE.match(pattern):
            found.add("/".join(fixed) or ".")
    return tuple(
        sorted(
            folder for folder in found if not any(folder.startswith(f"{other}/") for other in found)
        )
    )
