"""``rocsteady checkpoint``: what is in the folder, is it whole, and the way out and in."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import click

import rocsteady
from rocsteady import checkpoint_folder as folders
from rocsteady.checkpoint_folder import BrokenError
from rocsteady.cli.command_group import CommandGroup
from rocsteady.cli.machine_options import open_root, python_option
from rocsteady.errors import CheckpointError, ExaminationError, RocsteadyError
from rocsteady.host.bounded_call import AnswerKind, ask
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.machine.machine import examine
from rocsteady.model import Value
from rocsteady.report.table import LEAST_LAST, Column, Table
from rocsteady.report.text_page import GREEN, RED, Page
from rocsteady.terminal.screen import layout, show, show_json
from rocsteady.wording import plural
from rocsteady.wording import size as written_size
from rocsteady.workflows.plain_checkpoint import names_of, write_plain

WHOLE, BROKEN = 0, 1
AT_LEAST = timedelta(minutes=2)  # that torch may take, which is first imported
BYTES_A_SECOND = 10_000_000  # on a slow disk, once to be read and once to be written
PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1));"  # at the end: what is there comes first
    " from rocsteady.training.dcp_export import main; main()"
)
COLUMNS = (
    Column("step", right=True),
    Column("written"),
    Column("size", right=True),
    Column("state", least=LEAST_LAST),
)
STATE = 3  # the column
folder_argument = click.argument("folder", default="checkpoints", type=click.Path(path_type=Path))


class Listed(Value, frozen=True, kw_only=True):
    """One checkpoint."""

    name: str
    step: int
    written: float  # seconds since 1970
    bytes: int | None  # None: it does not say
    wrong: str  # as the end of a sentence; "" if it is whole


@click.group("checkpoint", cls=CommandGroup)
def command() -> None:
    """Inspect, export and import checkpoints written by rocsteady.training."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@folder_argument
def list_(*, as_json: bool, folder: Path) -> None:
    """List the checkpoints in FOLDER, newest first.

    Reads every byte to verify each checkpoint.

    Exit code: 0, 2 incorrect usage, 3 could not read them.
    """
    _show(folder, _listed(folder), as_json=as_json)


@command.command("verify")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@folder_argument
@click.pass_context
def verify(ctx: click.Context, *, as_json: bool, folder: Path) -> None:
    """Verify every byte of the checkpoints.

    Exit code: 0 all are intact, 1 at least one is broken, 2 incorrect usage, 3 could not read them,
    or there are none.
    """
    found = _listed(folder)
    if not found:
        raise ExaminationError(f"no rocsteady checkpoints in {folder}")
    _show(folder, found, as_json=as_json)
    ctx.exit(BROKEN if any(each.wrong for each in found) else WHOLE)


@command.command("export")
@click.argument("checkpoint", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--to", "target", required=True, type=click.Path(path_type=Path), help="Path to create."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["safetensors", "dcp"]),
    default="safetensors",
    help="A single file, or a torch.distributed.checkpoint folder.",
)
@click.option("--entry", default="model", help="Entry of the state to export.")
@click.option("--all", "everything", is_flag=True, help="Export every tensor, as ENTRY/NAME.")
@python_option
def export(  # noqa: PLR0913 - one argument an option
    *,
    checkpoint: Path,
    target: Path,
    format_: str,
    entry: str,
    everything: bool,
    python: str | None,
) -> None:
    """Convert CHECKPOINT to a format other tools can read.

    Existing files are not overwritten. A safetensors file holds the model's state_dict; writing it
    does not need torch. A torch.distributed.checkpoint folder holds the whole state and is written
    by the Python used for training.

    Exit code: 0, 1 failed, 2 incorrect usage.
    """
    if os.path.lexists(target):
        raise click.BadParameter(f"{target} already exists.", param_hint="--to")
    if not target.absolute().parent.is_dir():
        raise click.BadParameter(f"{target.absolute().parent} is not a folder.", param_hint="--to")
    wrong = folders.what_is_wrong(checkpoint)
    if wrong:
        raise CheckpointError(f"{checkpoint} {wrong}")
    if format_ == "dcp":
        size = folders.read_manifest(checkpoint).size
        told = _in_python(python, "export", checkpoint, target, size=size)
        show(f"{target}: {told}.\n")
        return
    try:
        manifest = folders.read_manifest(checkpoint)
        plan = folders.read_plan(checkpoint, manifest)
        state = folders.read_state(checkpoint, manifest, 0, plan).state
    except BrokenError as error:
        raise CheckpointError(f"{checkpoint} {error}") from None
    names = {name: name for name in plan} if everything else names_of(checkpoint, state, entry)
    tensors = {name: plan[inside] for name, inside in names.items()}
    size = write_plain(checkpoint, tensors, target)
    show(f"{target}: {plural(len(tensors), 'tensor')}, {written_size(size)}.\n")


@command.command("import")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--to",
    "target",
    default="checkpoints",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder in which to create the checkpoint.",
)
@click.option(
    "--step", default=0, type=click.IntRange(0, 10**17), help="Step number of the checkpoint."
)
@python_option
def import_(*, folder: Path, target: Path, step: int, python: str | None) -> None:
    """Create a checkpoint from a torch.distributed.checkpoint folder.

    FOLDER was written by torch.distributed.checkpoint; nothing in it is executed.
    Checkpointer.restore loads the result into a state with the same names: a state saved as
    {"model": ..., "optimizer": ...} becomes the entries "model" and "optimizer", and a single
    state_dict becomes the entry "model". rocsteady.Loop cannot resume from it, because the position
    in the data is unknown.

    Exit code: 0, 1 failed, 2 incorrect usage.
    """
    made = target / folders.name_of(step)
    if os.path.lexists(made):
        raise click.BadParameter(f"{made} already exists.", param_hint="--step")
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    told = _in_python(python, "import", folder, target, str(step), size=size)
    show(f"{made}: {told}.\n")


def _listed(folder: Path) -> list[Listed]:
    if not folder.is_dir():
        wrong = "is not a folder" if folder.exists() else "does not exist"
        raise click.UsageError(f"{folder} {wrong}. Name the folder that contains the checkpoints.")
    try:
        found = folders.steps(folder)
    except OSError as error:
        raise ExaminationError(f"{folder}: {error.strerror}") from None
    return [_looked_at(step, path) for step, path in found]


def _looked_at(step: int, path: Path) -> Listed:
    try:
        size = folders.read_manifest(path).size
    except BrokenError:
        size = None
    return Listed(
        name=path.name,
        step=step,
        written=path.stat().st_mtime,
        bytes=size,
        wrong=folders.what_is_wrong(path),
    )


def _show(folder: Path, found: list[Listed], *, as_json: bool) -> None:
    if as_json:
        told = {"version": 1, "folder": str(folder), "checkpoints": found}
        show_json(told)
        return
    width, colour = layout(sys.stdout)
    page = Page(width, colour=colour)
    if not found:
        page.line(f"No rocsteady checkpoints in {folder}.")
    else:
        rows = [
            (
                f"{each.step:,}",
                time.strftime("%Y-%m-%d %H:%M", time.localtime(each.written)),
                "-" if each.bytes is None else written_size(each.bytes),
                f"broken: {each.wrong}" if each.wrong else "ok",
            )
            for each in found
        ]
        styles = {(n, STATE): RED if each.wrong else GREEN for n, each in enumerate(found)}
        Table(COLUMNS, rows).draw(page, styles)
    show(str(page))


def _in_python(
    python: str | None, what: str, source: Path, target: Path, *more: str, size: int
) -> str:
    """Let the Python that trains do it, within a time that follows from the size."""
    interpreter = _interpreter(python)
    ours = str(Path(rocsteady.__file__).absolute().parents[1])
    paths = (str(source.absolute()), str(target.absolute()))
    command = (interpreter, "-c", PROGRAM, ours, what, *paths, *more)
    within = AT_LEAST + timedelta(seconds=size / BYTES_A_SECOND)
    answer = ask(command, within=within, complaints=True)
    if answer.outcome is AnswerKind.NOT_STARTED:
        raise RocsteadyError(f"{interpreter} could not be started")
    lines = answer.text.strip().splitlines() or ["no output"]
    if answer.outcome is not AnswerKind.ANSWERED:
        raise RocsteadyError(f"{interpreter} did not finish within {within}: {lines[-1]}")
    if answer.exit_code != 0:
        raise CheckpointError(lines[-1])
    return lines[-1]


def _interpreter(python: str | None) -> str:
    """Return the Python that trains, as the doctor finds it."""
    root = open_root(None, python)
    if root.python:
        return root.python
    found = examine(root, load_knowledge().variables)[0].python
    names = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
    paths = (Path(found.prefix) / name for name in names) if found else ()
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise click.UsageError("no Python environment with torch was found; use --python PATH.")
    return str(path)
