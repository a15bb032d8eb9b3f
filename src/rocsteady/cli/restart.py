"""``rocsteady restart``: stop a run and resume it, for one that only its user knows to be stuck."""

from __future__ import annotations

import click

from rocsteady.cli.run import command as run
from rocsteady.cli.stop import stop


@click.command("restart")
@click.option(
    "--detach", "detached", is_flag=True, help="Run in the background, detached from this terminal."
)
@click.argument("name", metavar="RUN")
@click.pass_context
def command(ctx: click.Context, *, name: str, detached: bool) -> None:
    """Stop a run and resume it here from its newest checkpoint.

    The same as rocsteady stop RUN followed by rocsteady run --resume RUN.
    """
    stop(name)
    ctx.invoke(run, resume=name, detached=detached)
