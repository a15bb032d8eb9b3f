"""Whether a job file may be run without asking: it names a program.

A job file is confirmed on its first use, since it may have come with a clone of a project, and when
it names another program, variable, address, checkpoint or place outside the project than before;
one that is somebody else's whenever it has changed. What an account agreed to is kept in its own
state folder, which does not travel with a project.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator
from enum import Enum
from glob import iglob
from itertools import islice
from pathlib import Path

from rocsteady.run.job.job_file import JobFile
from rocsteady.run.job.metrics import metrics_lines
from rocsteady.run.job.notify import notify_lines
from rocsteady.run.job.values import Job
from rocsteady.store.account_records import UsedFile, keep, kept
from rocsteady.system.real_path import real_path

# Variables by which a program is made to run code. A journal that came with a project sets none.
LOADS_CODE = re.compile(
    r"(?:LD_|DYLD_|PYTHON|GCONV_|BASH_|PERL|RUBY|NODE_|JAVA_|GIT_|OMP_TOOL|HSA_TOOLS|ROCP|ROCSTEADY_"
    r"|CONDA_|GLIBC_|TORCH_EXTENSIONS|TORCHINDUCTOR|TRITON|XDG_|HF_MODULES).*|PATH|ENV|IFS|SHELLOPTS|HOME|TMPDIR"
    r"|CC|CXX|LOCPATH|VIRTUAL_ENV|(?:CUDA|ROCM|HIP)_(?:PATH|HOME)"
    r"|EDITOR|VISUAL|PAGER|BROWSER|SHELL|PROMPT_COMMAND|MPLBACKEND"
    r"|OPENSSL_.*|.*_(?:PRELOAD|LIBRARY_PATH|PLUGIN|LIBRARIES|INJECTION64_PATH|DRIVERS_PATH)"
)
MOST_FOUND = 10_000  # files of a pattern that are looked at


class Doubt(Enum):
    """Why a job file must be confirmed before it is run."""

    NEW = "you have not used it before"
    CHANGED = "what it runs has changed since you last used it"
    ANOTHERS = "it belongs to another user"
    OPEN = "other users can write to it"


def doubts(file: JobFile, typed: Job | None = None) -> tuple[Doubt, ...]:
    """Return why a job file must be confirmed first. Nothing: it may be run.

    ``typed`` is its job with a command that the user typed in place of its own.
    """
    lines = tuple(_lines(typed or file.job, file.path.parent))[1 if typed else 0 :]
    if not lines:
        return ()
    found: list[Doubt] = []
    seen = kept(UsedFile, file.path)
    same = seen is not None and (seen.sha256, seen.owner) == (file.sha256, file.owner)
    if sys.platform != "win32":
        if file.owner != os.geteuid() and not same:
            found.append(Doubt.ANOTHERS)
        if file.mode & (stat.S_IWGRP | stat.S_IWOTH) and not same:
            found.append(Doubt.OPEN)
    if seen is None:
        found.append(Doubt.NEW)
    elif not set(lines) <= set(seen.commands):  # a link may lead elsewhere by now
        found.append(Doubt.CHANGED)
    return tuple(found)


def changes(file: JobFile) -> tuple[str, ...]:
    """Return what would be run in place of what was run last, as lines with - and +."""
    seen = kept(UsedFile, file.path)
    before, now = seen.commands if seen else (), tuple(_lines(file.job, file.path.parent))
    gone = [f"- {line}" for line in before if line not in now]
    return (*gone, *(f"+ {line}" for line in now if line not in before))


def trust(file: JobFile) -> None:
    """Keep that a job file may be used as it is."""
    lines = tuple(_lines(file.job, file.path.parent))
    keep(UsedFile(sha256=file.sha256, owner=file.owner, commands=lines), file.path)


def _lines(job: Job, folder: Path) -> Iterator[str]:
    """Spell what a job file starts, sends to and reaches outside its folder; its command first."""
    yield f"command: {shlex.join(job.command)}"
    yield from _resume_lines(job)
    for name, variant in job.variants.items():
        yield f"variants.{name}.arguments: {shlex.join(variant.arguments)}"
        if variant.without:
            yield f"variants.{name}.without: {shlex.join(variant.without)}"
        for variable, value in variant.environment.items():
            yield f"variants.{name}.environment: {variable}={value}"
    for stage in job.stages:
        yield f"stages.{stage.name}.arguments: {shlex.join(stage.arguments)}"
    yield from notify_lines(job.notify)
    yield from metrics_lines(job.metrics)
    for key, path in _paths(job):
        for place in dict.fromkeys(_places(folder, os.path.expanduser(path))):  # noqa: PTH111 - of a pattern
            if not Path(place).is_relative_to(real_path(folder)):
                yield f"{key}, outside this folder: {path} (in {place})"


def _places(folder: Path, pattern: str) -> Iterator[str]:
    """Yield the folders that a pattern reaches: where it begins, and where links lead by now."""
    fixed = real_path(folder / os.path.dirname(re.split(r"[*?\[]", pattern)[0]))  # noqa: PTH120 - of a pattern
    yield fixed
    for found in islice(iglob(pattern, root_dir=folder, recursive=True), MOST_FOUND):  # noqa: PTH207 - of a pattern
        place = os.path.dirname(real_path(folder / found))  # noqa: PTH120
        if not Path(place).is_relative_to(fixed):
            yield place


def _resume_lines(job: Job) -> Iterator[str]:
    if job.resume_trainer:
        yield "resume_trainer: true"
    if job.resume is None:
        return
    if job.resume.arguments:
        yield f"resume.arguments: {shlex.join(job.resume.arguments)}"
    for name, value in job.resume.environment.items():
        yield f"resume.environment: {name}={value}"
    yield f"resume.checkpoints: {shlex.join(job.resume.checkpoints)}"
    if job.resume.existing is not None:
        yield f"resume.existing: {job.resume.existing.value}"


def _paths(job: Job) -> Iterator[tuple[str, str]]:
    if job.resume is not None:
        yield from (("resume.checkpoints", pattern) for pattern in job.resume.checkpoints)
    for done_when in (job.done_when, *(stage.done_when for stage in job.stages)):
        if done_when is not None:
            yield from (("done_when.files", wanted.path) for wanted in done_when.files)
    if job.metrics is not None:
        for key in ("file", "prometheus"):
            if path := getattr(job.metrics, key):
                yield f"metrics.{key}", path
