"""``rocsteady checkpoint``: what is in the folder, and whether it is intact."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rocsteady_train.checkpoints import folder as folders
from rocsteady_train.checkpoints.folder import BrokenError

from rocsteady.colours import GREEN, RED
from rocsteady.errors import ExaminationError
from rocsteady.model import Value
from rocsteady.screens.screen import LEAST_LAST, Column, page_here, show, show_json
from rocsteady.wording import size as written_size

WHOLE, BROKEN = 0, 1
COLUMNS = (
    Column("step", right=True),
    Column("written"),
    Column("size", right=True),
    Column("state", least=LEAST_LAST),
)
STATE = 3  # the column


class Listed(Value, frozen=True, kw_only=True):
    name: str
    step: int
    written: float  # seconds since 1970
    bytes: int | None  # None: it does not say
    wrong: str  # as the end of a sentence; "" if it is whole


NONE = "no checkpoints of rocsteady_train in"


@click.command("checkpoint")
@click.argument("folder", default="checkpoints", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, *, folder: Path, as_json: bool) -> None:
    """List the checkpoints that rocsteady_train wrote to FOLDER, newest first, and verify them.

    Reads every byte of each. Without FOLDER: checkpoints.

    Exit code: 0 all are intact, 1 at least one is broken, 2 incorrect usage, 3 could not read them,
    or there are none.
    """
    found = _listed(folder)
    if not found:
        more = "; what a script saves itself is not verified" if any(folder.iterdir()) else ""
        raise ExaminationError(f"{NONE} {folder}{more}")
    if as_json:
        show_json({"version": 1, "folder": str(folder), "checkpoints": found})
    else:
        _show(found)
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


def _show(found: list[Listed]) -> None:
    page = page_here()
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
