"""``rocsteady checkpoint``: what is in the folder, and whether it is intact."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rocsteady_train.checkpoints import folder as folders
from rocsteady_train.checkpoints.folder import BrokenError

from rocsteady.cli.main import CommandGroup
from rocsteady.colours import GREEN, RED
from rocsteady.errors import ExaminationError
from rocsteady.model import Value
from rocsteady.screens.screen import LEAST_LAST, Column, Page, layout, show, show_json
from rocsteady.wording import size as written_size

WHOLE, BROKEN = 0, 1
COLUMNS = (
    Column("step", right=True),
    Column("written"),
    Column("size", right=True),
    Column("state", least=LEAST_LAST),
)
STATE = 3  # the column
folder_argument = click.argument("folder", default="checkpoints", type=click.Path(path_type=Path))


class Listed(Value, frozen=True, kw_only=True):
    name: str
    step: int
    written: float  # seconds since 1970
    bytes: int | None  # None: it does not say
    wrong: str  # as the end of a sentence; "" if it is whole


NONE = "no checkpoints of rocsteady_train in"


@click.group("checkpoint", cls=CommandGroup)
def command() -> None:
    """Inspect checkpoints written by rocsteady_train."""


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
        raise ExaminationError(f"{NONE} {folder}")
    _show(folder, found, as_json=as_json)
    ctx.exit(BROKEN if any(each.wrong for each in found) else WHOLE)


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
        document = {"version": 1, "folder": str(folder), "checkpoints": found}
        show_json(document)
        return
    width, colour = layout(sys.stdout)
    page = Page(width, colour=colour)
    if not found:
        page.paragraph(f"{NONE.capitalize()} {folder}.")
        if any(folder.iterdir()):
            page.paragraph("What a script saves itself is not verified; rocsteady run finds it.")
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
        page.table(COLUMNS, rows, styles)
    show(str(page))
