"""The ``rocsteady`` command: its subcommands, and the one place where errors end.

A command's module is imported only when it is used, so that each starts as fast as it can.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import NoReturn

import click

from rocsteady import __version__
from rocsteady.cli.screen import silence_stdout
from rocsteady.errors import ExaminationError, RocsteadyError

# Name to module and one line of help. Not in this table, not a command.
COMMANDS = {
    "doctor": (
        "rocsteady.cli.doctor",
        "Say what this machine is, what is wrong with it, says who.",
    ),
    "machine": ("rocsteady.cli.machine", "Show what was read of this machine, or record it."),
    "probe": ("rocsteady.cli.probe", "Try what training needs, and say what works here."),
    "init": ("rocsteady.cli.init", "Write rocsteady.toml by watching a short run."),
    "plan": ("rocsteady.cli.plan", "Try every way to get the job done; say which to take."),
    "run": ("rocsteady.cli.run", "Run a training command, watch it, restart it when it hangs."),
    "drill": ("rocsteady.cli.drill", "Rehearse hangs and crashes before a run is left alone."),
    "runs": ("rocsteady.cli.runs", "List the runs of this project."),
    "stop": ("rocsteady.cli.stop", "End a run."),
    "report": ("rocsteady.cli.report", "Tell what happened in a run, and why."),
    "remedies": ("rocsteady.cli.remedies", "List what may be changed after a failure."),
    "checkpoint": ("rocsteady.cli.checkpoint", "List, verify, export and import checkpoints."),
    "explain": ("rocsteady.cli.explain", "Name an error and say what is known of it."),
}
ERROR, COULD_NOT_EXAMINE, INTERRUPTED = 1, 3, 130


class Commands(click.Group):
    """The table above, as click wants it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one that is asked for."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="rocsteady %(version)s")
def rocsteady() -> None:
    """Get PyTorch training runs finished on AMD GPUs."""


def main() -> NoReturn:
    """Run the command and turn whatever happens into an exit code."""
    try:
        sys.exit(rocsteady.main(prog_name="rocsteady", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except OSError as error:  # a full disk below stdout, say
        silence_stdout()
        click.echo(f"rocsteady: {error.strerror or error}", err=True)
        sys.exit(COULD_NOT_EXAMINE)
    except RocsteadyError as error:
        click.echo(f"rocsteady: {error}", err=True)
        sys.exit(COULD_NOT_EXAMINE if isinstance(error, ExaminationError) else ERROR)
    except Exception:  # noqa: BLE001 - the edge: a bug becomes a report that can be pasted
        _report_bug()
        sys.exit(COULD_NOT_EXAMINE)


def _report_bug() -> None:
    import platform  # noqa: PLC0415 - neither is needed, nor paid for, by a run that works
    import traceback  # noqa: PLC0415

    trace = traceback.format_exc()
    lines = (
        "rocsteady: this is a bug in rocsteady. Nothing was changed. The report, for an issue:",
        f"rocsteady {__version__}, Python {platform.python_version()}, {platform.platform()}",
        trace.replace(str(Path.home()), "~"),
    )
    click.echo("\n".join(lines), err=True)
