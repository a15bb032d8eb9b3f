"""``rocsteady env``: what each variable does on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rocsteady.cli.machine_options import open_root, python_option, root_option
from rocsteady.doctor.variable_review import review_variables
from rocsteady.screens.screen import layout, show, show_json, without_secrets
from rocsteady.screens.variables import render_variables

ALL_ACT, SOME_DO_NOT = 0, 1


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
    """Show what each ROCm and PyTorch variable does on this machine.

    Without FILE, checks the variables that are set now. FILE can be a shell or sbatch script, .env,
    a compose or Kubernetes file, or rocsteady.toml; nothing in it is executed.

    Exit code: 0 no problems, 1 at least one variable does harm, has no effect or is invalid,
    2 incorrect usage, 3 could not examine the machine.
    """
    review = review_variables(open_root(root, python), file)
    if as_json:
        show_json(review)
    else:
        width, colour = layout(sys.stdout)
        show(render_variables(without_secrets(review), width=width, colour=colour))
    ctx.exit(SOME_DO_NOT if review.wrong else ALL_ACT)
