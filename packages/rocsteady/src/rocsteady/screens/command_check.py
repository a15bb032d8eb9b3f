"""Checks the command that a user typed, before anything is created for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from rocsteady.store.redaction.redactor import shown_command

SCRIPT = ".py"


def check_interpreter(command: tuple[str, ...], folder: Path) -> None:
    """Refuse a Python script without an interpreter, and offer the command with one."""
    program = command[0]
    if not program.endswith(SCRIPT) or not (folder / program).is_file():
        return
    found = folder / program if os.path.dirname(program) else shutil.which(program)  # noqa: PTH120
    if found and os.access(found, os.X_OK):
        return
    python = "python" if shutil.which("python") or not shutil.which("python3") else "python3"
    raise click.UsageError(
        f"{program} is a script, not a program. Did you mean: {shown_command((python, *command))}"
    )


def check_command(command: tuple[str, ...], folder: Path) -> None:
    """Refuse a program that does not exist, before anything is created for it."""
    check_interpreter(command, folder)
    if shutil.which(command[0]) is None and not (folder / command[0]).exists():
        raise click.UsageError(f"{command[0]}: not found")
