"""The ``rocsteady`` command: its subcommands, and the one place where errors end.

A command's module is imported only when it is used, so that each starts as fast as it can.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import click

from rocsteady import __version__
from rocsteady.errors import (
    EXHAUSTED,
    ExaminationError,
    JobError,
    RequestError,
    RocsteadyError,
    is_exhausted,
)
from rocsteady.exit_codes import INTERRUPTED
from rocsteady.screens.screen import silence_stdout, tell
from rocsteady.suggestions import no_such

# What --help lists; each command has a module of its name in rocsteady.cli.
GROUPS = {
    "Start here": {
        "doctor": "what is wrong with this machine, and the fix",
        "run -- COMMAND": "run your training, unchanged, until it is done",
        "watch [--pid PID]": "follow a run, or look into a process that is stuck",
        "report": "what happened in the last run, and what to do",
    },
    "More": {
        "explain TEXT": "what an error message, a finding or a GPU means",
        "probe [-- COMMAND]": "what works here; which operation fails, what cures it",
        "env, wheels, fleet": "your variables; which torch for a GPU; many machines",
        "init, plan, drill": "job file; compare options; rehearse failures",
        "status, logs, stop": "runs of this project",
        "machine": "record this machine, or print it for an issue",
        "checkpoint, notify": "verify checkpoints; test your alerts",
    },
}
COMMANDS = tuple(
    word
    for group in GROUPS.values()
    for usage in group
    for word in usage.replace(",", "").split()
    if word.isalpha() and word.islower()
)
EXAMPLES = """\
  rocsteady run -- python train.py --epochs 10
  rocsteady watch --pid
  rocsteady explain "HIP out of memory"
"""
DOCS = "https://github.com/rocsteady/rocsteady/tree/main/docs"
STOPPING = ("stop",)  # never suggested for a mistyped name
NOT_ON_WINDOWS = {"probe", "init", "run", "drill", "stop"}
ERROR, USAGE, COULD_NOT_EXAMINE = 1, 2, 3
NO_BREAK = "\N{NON-BREAKING HYPHEN}"


class HelpFormatter(click.HelpFormatter):
    """Breaks no line at a hyphen: IDs and options are copied from help."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", NO_BREAK))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        kept = [(name, words.replace("-", NO_BREAK)) for name, words in rows]
        super().write_dl(kept, col_max, col_spacing)

    def write(self, string: str) -> None:
        super().write(string.replace(NO_BREAK, "-"))


click.Context.formatter_class = HelpFormatter


class Commands(click.Group):
    """The groups above, as click wants them; older releases of click suggest nothing."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            harmless = [name for name in names if name not in STOPPING]
            listed = f"To list them: {ctx.command_path} --help"
            ctx.fail(no_such("command", args[0], harmless, listed))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if sys.platform == "win32" and cmd_name in NOT_ON_WINDOWS:
            ctx.fail(f"rocsteady {cmd_name} needs Linux or WSL2.")
        module = importlib.import_module(f"rocsteady.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        column = max(len(usage) for group in GROUPS.values() for usage in group)
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(usage.ljust(column), line) for usage, line in group.items()])
        formatter.write(f"\nExamples:\n{EXAMPLES}\n")
        formatter.write(f"rocsteady COMMAND --help has its options.\nDocs: {DOCS}\n")


WIDE = 120  # columns of help on a terminal that has them
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": WIDE}


@click.command(cls=Commands, context_settings=SETTINGS)
@click.version_option(__version__, "-V", "--version", message="rocsteady %(version)s")
def rocsteady() -> None:
    """Get PyTorch training runs finished on AMD GPUs."""


def leave_own_environment() -> None:
    """Take the environment that uvx made for us off PATH: python is to be the user's own."""
    if re.search(r"[/\\](?:archive|environments)-v\d+[/\\]", sys.prefix):
        own = os.path.realpath(Path(sys.executable).parent)
        folders = os.environ.get("PATH", "").split(os.pathsep)
        kept = [each for each in folders if os.path.realpath(each) != own]
        os.environ["PATH"] = os.pathsep.join(kept)


def main() -> NoReturn:
    leave_own_environment()
    for name in ("stdout", "stderr"):  # closed by whoever started it: there is nobody to tell
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - stays
    with contextlib.suppress(OSError, ValueError):  # where it crashed, if Python itself does
        faulthandler.enable()
    try:
        sys.exit(rocsteady.main(prog_name="rocsteady", standalone_mode=False))
    except click.ClickException as error:
        is_help = isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ()))
        tell(error.format_message() if is_help else one_line(error))
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        tell("\nrocsteady: interrupted")
        sys.exit(INTERRUPTED)
    except OSError as error:  # a full disk below stdout, say
        silence_stdout()
        place = f"{error.filename}: " if error.filename else ""
        tell(f"error: {place}{error.strerror or error}")
        sys.exit(COULD_NOT_EXAMINE)
    except (JobError, RequestError) as error:
        tell(f"error: {error}")
        sys.exit(USAGE)
    except RocsteadyError as error:
        tell(f"error: {error}")
        sys.exit(COULD_NOT_EXAMINE if isinstance(error, ExaminationError) else ERROR)
    except Exception as error:  # noqa: BLE001 - the edge: a bug becomes a report that can be pasted
        if is_exhausted(error):
            tell(f"error: {EXHAUSTED}")
        else:
            _report_bug()
        sys.exit(COULD_NOT_EXAMINE)


def one_line(error: click.ClickException) -> str:
    """Return what is wrong, and where the options are listed if it does not say what to type."""
    text = " ".join(error.format_message().split())
    text = text.replace("is not a valid integer range", "is not a whole number")
    says_what_to_type = "rocsteady " in text or "Did you mean" in text
    if isinstance(error, click.UsageError) and error.ctx and not says_what_to_type:
        text = f"{text.rstrip('.')}. To see the options: {error.ctx.command_path} --help"
    return f"error: {text}"


def _report_bug() -> None:
    import platform  # noqa: PLC0415 - neither is needed, nor paid for, by a run that works
    import traceback  # noqa: PLC0415

    trace = traceback.format_exc()
    lines = (
        "rocsteady: internal error. Please report it with the text below:",
        f"rocsteady {__version__}, Python {platform.python_version()}, {platform.platform()}",
        trace.replace(str(Path.home()), "~"),
    )
    tell("\n".join(lines))
