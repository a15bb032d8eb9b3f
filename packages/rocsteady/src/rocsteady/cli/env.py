"""``rocsteady env``: what the variables that are set, or that a file sets, do here."""

from __future__ import annotations

from pathlib import Path

import click

from rocsteady.cli.options import open_root, python_option, root_option
from rocsteady.doctor.env.variables import review_variables
from rocsteady.screens.doctor import render_variables
from rocsteady.screens.screen import present

ALL_ACT, SOME_DO_NOT = 0, 1  # variables


@click.command("env")
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@python_option
@root_option
@click.pass_context
def command(
    ctx: click.Context, *, file: Path | None, as_json: bool, python: str | None, root: Path | None
) -> None:
    """Check your ROCm and PyTorch environment variables.

    Without FILE, checks the variables that are set now. FILE can be any text file that sets
    variables, such as a script, a Dockerfile, .env or a compose file; nothing in it is executed.

    Exit code: 0 no problems, 1 at least one variable does harm, has no effect or is invalid,
    2 incorrect usage, 3 could not examine the machine.
    """
    review = review_variables(open_root(root, python), file)
    present(review, render_variables, as_json=as_json)
    ctx.exit(SOME_DO_NOT if review.wrong else ALL_ACT)
