"""Lines of shell that more than one place needs. What comes from the user is always quoted."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath, PureWindowsPath

from rocsteady.exports.export import Export
from rocsteady.exports.torchrun_command import (
    BACKEND,
    PORT,
    several_hosts,
    torchrun_hosts,
    without_meeting,
)

AS_IT_IS = "torch-as-it-is.txt"
TEMPORARY = "/tmp"  # noqa: S108 - on a machine that is rented, or in an image
VERSION = "\"import importlib.metadata as m; print('torch==' + m.version('torch'))\""
ENVIRONMENT = "training-env"
RESTARTS = 100
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


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


def run_line(export: Export) -> str:
    """Return the command that does the job, for a person to start."""
    return shlex.join(("rocsteady", "run", "--yes", "--", *command_elsewhere(export.command)))


def job_line(export: Export) -> str:
    """Return the command that does the job, for a scheduler, which starts it again and again.

    On several hosts torchrun starts the watchers itself.
    """
    command = command_elsewhere(export.command)
    if several_hosts(command):
        return shlex.join(without_meeting(command))
    resumes = ("--continue",) if export.checkpoints else ()
    return shlex.join(("rocsteady", "run", "--yes", *resumes, "--", *command))


def rendezvous(export: Export, first_host: str, job: str) -> list[str]:
    """Return what lets the ranks of a torchrun meet; the texts are shell that names both.

    A limit above 0 tells the watchers that the script loads its checkpoint when it is restarted.
    """
    if torchrun_hosts(export.command) is None:
        return []
    lines = [f"export {BACKEND}"]
    if several_hosts(export.command):
        lines += [
            f'PET_RDZV_ENDPOINT="{first_host}:{PORT}"',
            f'export PET_RDZV_ENDPOINT PET_RDZV_ID="{job}"',
        ]
        if export.checkpoints:
            lines.append(f"export PET_MAX_RESTARTS={RESTARTS}")
    return lines


def environment(export: Export) -> list[str]:
    """Return what sets and unsets variables, if there are any."""
    unset = [shlex.join(("unset", *export.unset))] if export.unset else []
    return [*unset, *(f"export {name}={shlex.quote(text)}" for name, text in _variables(export))]


def install(export: Export, folder: str = TEMPORARY) -> list[str]:
    """Install what the job needs beside torch, which stays as it is.

    A requirement for torch would otherwise bring a build for another GPU. The folder, for a file
    with the version of torch, must be one that other users of the machine cannot write to.
    """
    pip = "python3 -m pip install"
    as_it_is = f"{folder}/{AS_IT_IS}"
    lines = []
    if export.requirements:
        file = shlex.quote(_no_option(export.requirements))
        lines = [
            f"python3 -c {VERSION} > {as_it_is}",
            f"{pip} -c {as_it_is} -r {file}",
        ]
    return [*lines, f"{pip} {shlex.quote(export.rocsteady)}"]


def _variables(export: Export) -> list[tuple[str, str]]:
    return [(name, text) for name, text in export.variables.items() if name not in export.unset]


def _no_option(path: str) -> str:
    return f"./{path}" if path.startswith("-") else path


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
