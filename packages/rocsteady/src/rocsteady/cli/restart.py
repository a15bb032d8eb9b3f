"""``rocsteady restart``: stop a run and resume it, for one that only its user knows to be stuck."""

from __future__ import annotations

import click

from rocsteady.cli.project_journal import find_run, kept_journal
from rocsteady.cli.run import command as run
from rocsteady.cli.stop import stop
from rocsteady.errors import RocsteadyError
from rocsteady.run.script_resume import can_resume


@click.command("restart")
@click.option(
    "--detach", "detached", is_flag=True, help="Run in the background, detached from this terminal."
)
@click.option(
    "--from-scratch",
    "from_scratch",
    is_flag=True,
    help="If the run cannot resume, start it from the beginning.",
)
@click.argument("name", metavar="RUN")
@click.pass_context
def command(ctx: click.Context, *, name: str, detached: bool, from_scratch: bool) -> None:
    """Stop a run and resume it here from its newest checkpoint.

    The same as rocsteady stop RUN followed by rocsteady run --resume RUN. Does nothing if the run
    cannot resume.
    """
    with kept_journal(name) as journal:
        line = find_run(journal, name)
        if journal is not None and not from_scratch and not can_resume(line.run, journal):
            raise RocsteadyError(
                f"{name} was not stopped: rocsteady does not know how its script resumes, and a"
                f" restart would lose its progress. To stop it: rocsteady stop {name}. To start it"
                f" from the beginning: rocsteady restart {name} --from-scratch"
            )
    stop(name)
    ctx.invoke(run, resume=name, detached=detached, from_scratch=from_scratch)
