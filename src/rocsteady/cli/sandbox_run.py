"""What commands share that run a script over its folder, and never in it.

A place for what it writes, and a word about paths that are not protected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from rocsteady.cli.screen import tell
from rocsteady.errors import RocsteadyError
from rocsteady.host.child import TerminalUse
from rocsteady.job.values import Job
from rocsteady.journal.identity import fingerprint, is_alive
from rocsteady.sandbox.folder_tree import Tree
from rocsteady.sandbox.offline import offline
from rocsteady.sandbox.redirect import LeadsBackError
from rocsteady.sandbox.scratch import Method, Scratch, make_scratch, outside, remove
from rocsteady.supervisor.injection import OWNER, read_owner

WRONG_USAGE = 2
SHOWN_LINES = 5  # of those whose paths were redirected
ON_STDERR = TerminalUse(stdin=None, stdout=2, stderr=2)  # stdout is for what came of it


def ask_about_paths(words: Sequence[str], folder: Path, what: str, *, yes: bool) -> None:
    """Name paths that the script would write to as in earnest."""
    found = outside(words, folder)
    if not found or yes:
        return
    tell(
        f"rocsteady: outside this folder, and not protected: {', '.join(found)}. If the script"
        f" writes there, so does the {what}."
    )
    if not sys.stdin.isatty() or not click.confirm("Go on?", err=True):
        raise click.UsageError("nothing was started. Other paths, or --yes.")


def name_for(folder: Path) -> str:
    """Name what belongs to a folder."""
    return f"{folder.name or 'root'}-{fingerprint(str(folder))[:12]}"


def make_root(root: Path, folder: Path, *, inside: str, busy: str) -> Path:
    """Make the folder for all that is written; what an earlier one left is removed.

    ``inside`` is what to do if it lies in the user's own folder, ``busy`` what is going on if it is
    in use.
    """
    if Path(os.path.realpath(root)).is_relative_to(os.path.realpath(folder)):
        raise click.UsageError(f"{root} lies in {inside}")
    if (root / OWNER).exists() and is_alive(read_owner(root)):
        raise RocsteadyError(busy)
    if root.exists():
        remove(root)
    root.mkdir(mode=0o700, parents=True)
    return root


def lay_out_scratch(
    folder: Path, root: Path, before: Tree, without: Iterable[str] = ()
) -> tuple[Scratch, dict[str, str], Path]:
    """Return where the script runs, its environment, and a folder for marks."""
    trackers, marks = root / "trackers", root / "marks"
    for made in (trackers, marks):
        made.mkdir()
    environment = offline(os.environ, trackers)
    try:
        scratch = make_scratch(folder, root, before, environment=environment, without=without)
    except LeadsBackError as error:
        tell(f"error: {error}. Nothing was started.")
        raise click.exceptions.Exit(WRONG_USAGE) from None
    return scratch, scratch.environment(environment), marks


def say_where(scratch: Scratch, what: str) -> None:
    """Say how the user's folder is kept as it is."""
    if scratch.method is Method.COPY:
        where = f"the {what} runs in a copy of this folder (no mounts here): {scratch.folder}"
    elif scratch.method is Method.BIND:
        where = f"the {what} runs in a copy of this folder, mounted in its place: {scratch.folder}"
    else:
        where = f"the {what} runs over this folder (overlay); its output goes to {scratch.folder}"
    tell(f"rocsteady: {where}.")
    if scratch.method is Method.OVERLAY_NO_RENAME:
        tell("rocsteady: renaming a folder that exists already fails there (EXDEV).")
    if scratch.redirected:
        more = len(scratch.redirected) - SHOWN_LINES
        tell("rocsteady: absolute paths into this folder lead into the copy there:")
        tell("\n".join(f"  {line}" for line in scratch.redirected[:SHOWN_LINES]))
        if more > 0:
            tell(f"  and {more} more lines")


def job_in(scratch: Scratch, job: Job) -> Job:
    """Return a job whose files are looked for where they are written."""
    done, resume = job.done_when, job.resume
    files = tuple(replace(each, path=scratch.inside(each.path)) for each in done.files)
    if resume is not None:
        resume = replace(resume, checkpoints=tuple(map(scratch.inside, resume.checkpoints)))
    return replace(job, done_when=replace(done, files=files), resume=resume)
