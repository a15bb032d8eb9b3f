"""What ``init`` asks: only what it cannot see, and only on a terminal."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from msgspec.structs import replace

from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.plan.job_file_text import Draft
from rocsteady.plan.script_facts import scripts_here
from rocsteady.plan.work_amount import Work
from rocsteady.run.job.quantities import deadline, dollars
from rocsteady.run.job.values import Total
from rocsteady.run.strategy_history import examined
from rocsteady.screens.screen import tell

PLACES = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
NAME_ONE = "name a command: rocsteady init -- python train.py"

Answer = TypeVar("Answer")


def ask_command(folder: Path, *, ask: bool) -> tuple[str, ...]:
    """Return what trains here: the one script that looks so, or what a person types."""
    scripts = scripts_here(folder)
    python = _python(folder)
    if len(scripts) == 1 and python:
        return (python, scripts[0])
    here = f"{', '.join(scripts)} are here" if scripts else "there is no train*.py and no main.py"
    if len(scripts) == 1:
        here = "no Python environment with torch was found"
    if not ask:
        raise click.UsageError(f"{here}; {NAME_ONE}")
    words = click.prompt(
        f"{here}. Which command starts the training?", value_proc=shlex.split, err=True
    )
    if not words:
        raise click.UsageError(NAME_ONE)
    return tuple(words)


def ask_total(draft: Draft) -> Draft:
    """Ask how much work it is, if that could not be seen."""
    if draft.work.total is not None:
        return draft
    steps = _ask("Total number of optimizer steps? Press Enter if unknown", _count)
    if steps is None:
        return draft
    work = Work(total=Total(steps=steps), why="Entered by you.", sure=True)
    return replace(draft, work=work)


def ask_limits(draft: Draft) -> Draft:
    """Ask by when, and for how much."""
    due = _ask(
        "Deadline? For example 36h after the start, or 2026-11-30 18:00. Press Enter for none", _due
    )
    most = _ask("Budget in dollars? Press Enter for none", lambda text: dollars(_count(text)))
    return replace(draft, deadline=due or "", budget=most)


def _ask(question: str, read: Callable[[str], Answer]) -> Answer | None:
    """Ask until the answer can be read; no answer is one."""
    while True:
        typed = click.prompt(question, default="", show_default=False, err=True).strip()
        if not typed:
            return None
        try:
            return read(typed)
        except ValueError as error:
            tell(f"{error}.")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _due(text: str) -> str:
    deadline(text)
    return text


def _python(folder: Path) -> str:
    """Name the Python of the active environment as a person would, or by its path."""
    found = examined(load_knowledge()).python
    if found is None:
        return ""
    paths = (Path(found.prefix) / place for place in PLACES)
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return ""
    for name in ("python", "python3"):
        first = shutil.which(name)
        if first and Path(first).parent == path.parent:
            return name
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
