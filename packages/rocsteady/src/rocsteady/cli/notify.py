"""``rocsteady notify``: who is told of a run's incidents and its end, and whether that works."""

from __future__ import annotations

from pathlib import Path

import click

from rocsteady.cli.project import find_job_folder
from rocsteady.run.job import FILE
from rocsteady.run.job.job_file import read_job
from rocsteady.run.job.values import Job
from rocsteady.run.telling.notifications import channels, sample_notice
from rocsteady.screens.job_questions import ask_about
from rocsteady.screens.screen import show

WORKED, FAILED = 0, 1


@click.command("notify")
@click.option("--test", "tries", is_flag=True, help="Send a test notification to each channel.")
@click.option("--yes", is_flag=True, help="Skip the confirmation if the job file has changed.")
@click.pass_context
def command(ctx: click.Context, *, tries: bool, yes: bool) -> None:
    """List the channels that notify you of hangs, crashes, a missed deadline and the end of a run.

    Set them in the table [notify] of rocsteady.toml or of your user configuration.

    Exit code: 0, 1 if a test notification could not be sent, 2 for incorrect usage.
    """
    folder = find_job_folder(Path.cwd())
    job = _trusted_job(folder, yes=yes) if (folder / FILE).exists() else None
    found = channels(job, folder)
    if not found:
        raise click.UsageError(f"no notifications are configured: add a [notify] table to {FILE}")
    code = WORKED
    for channel in found:
        if not tries:
            show(f"{channel.name}: on {', '.join(event.value for event in channel.on)}\n")
            continue
        why = channel.send(sample_notice())
        code = FAILED if why else code
        show(f"{channel.name}: {f'failed: {why}' if why else 'sent'}\n")
    ctx.exit(code)


def _trusted_job(folder: Path, *, yes: bool) -> Job:
    """Return the job of a file; its command and webhook are confirmed like the job's own."""
    file = read_job(folder / FILE)
    ask_about(file, yes=yes)
    return file.job
