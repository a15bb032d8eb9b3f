"""``rocsteady notify``: who is told of a run's incidents and its end, and whether that works."""

from __future__ import annotations

from pathlib import Path

import click

from rocsteady.cli.project import find_job_folder
from rocsteady.run.job import FILE
from rocsteady.run.job.job_file import read_job
from rocsteady.run.telling.notifications import channels, sample_notice
from rocsteady.screens.job_questions import ask_about
from rocsteady.screens.screen import show

WORKED, FAILED = 0, 1
EXAMPLE = '[notify] and webhook = "https://ntfy.sh/my-own-topic"'


@click.command("notify")
@click.option("--test", "tries", is_flag=True, help="Send a test notification to each channel.")
@click.option("--yes", is_flag=True, help="Skip the confirmation if the job file has changed.")
@click.pass_context
def command(ctx: click.Context, *, tries: bool, yes: bool) -> None:
    """List the channels that notify you of hangs, crashes, a missed deadline and the end of a run.

    Set one in rocsteady.toml or in your user configuration, in two lines: [notify], and
    webhook = "https://ntfy.sh/my-own-topic" (or an address of Slack, Discord or your own).

    Exit code: 0, 1 if a test notification could not be sent, 2 for incorrect usage.
    """
    folder = find_job_folder(Path.cwd())
    file = read_job(folder / FILE) if (folder / FILE).exists() else None
    if file and tries:  # what it names is confirmed before it is used, and not before it is listed
        ask_about(file, yes=yes)
    found = channels(file.job if file else None, folder)
    if not found:
        raise click.UsageError(f"no notifications are set up. In {FILE}, two lines: {EXAMPLE}")
    code = WORKED
    for channel in found:
        if not tries:
            show(f"{channel.name}: on {', '.join(event.value for event in channel.on)}\n")
            continue
        why = channel.send(sample_notice())
        code = FAILED if why else code
        show(f"{channel.name}: {f'failed: {why}' if why else 'sent'}\n")
    ctx.exit(code)
