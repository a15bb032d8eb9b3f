"""Which variables a file sets: shell scripts, .env, compose, Kubernetes and job files.

Nothing is executed. A file is read as its commands stand, from top to bottom; branches are not
followed. A value that only a shell could work out is None.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from types import MappingProxyType

from rocsteady.doctor.shell_variables import (
    LONGEST_COMMAND,
    NAME,
    Assignment,
    Exported,
    Reach,
    Started,
    Step,
    Unset,
    plain_value,
    segment_steps,
    shell_steps,
)
from rocsteady.doctor.yaml_variables import yaml_steps
from rocsteady.errors import ExaminationError
from rocsteady.toml import parse_toml

NOT_READ = (".bat", ".cmd", ".dockerfile", ".ipynb", ".ps1", ".py", ".service")
READ = "shell and sbatch scripts, .env, compose and Kubernetes YAML, rocsteady.toml"


def assignments(text: str, file: str) -> tuple[Assignment, ...]:
    """Return what a file sets, in its order; the last assignment of a name counts.

    What is unset again acts if a program was started before.
    """
    found: dict[tuple[str, str, str], Assignment] = {}
    seen: set[tuple[str, str, str]] = set()  # by a program that the file starts
    for step in _reader(text, file)(text):
        key = ("", "", step.name)
        if isinstance(step, Assignment):
            key = (step.part, step.command, step.name)
        before = found.get(key)
        if isinstance(step, Started):
            seen = set(found)
        elif isinstance(step, Unset):
            if before is not None and key not in seen:
                found[key] = before._replace(reach=Reach.UNSET, until=step.place)
        elif isinstance(step, Exported):
            if before is not None and before.reach is Reach.SHELL:
                found[key] = before._replace(reach=Reach.PROGRAMS)
        else:
            exported = before is not None and before.reach is Reach.PROGRAMS
            reach = Reach.PROGRAMS if exported and step.reach is Reach.SHELL else step.reach
            found.pop(key, None)
            seen.discard(key)
            found[key] = step._replace(reach=reach)
    lines = text.splitlines()
    return tuple(each._replace(place=_exact(each, lines)) for each in found.values())


def _exact(each: Assignment, lines: list[str]) -> str:
    """Return the line of a long command on which the name stands."""
    first = int(each.place.removeprefix("line "))
    last = min(len(lines), first + LONGEST_COMMAND)
    found = (n for n in range(first, last + 1) if each.name in lines[n - 1])
    return f"line {next(found, first)}"


def _reader(text: str, file: str) -> Callable[[str], Iterator[Step]]:
    """Choose by the file's name, else by its first words."""
    path = PurePath(file)
    name, suffix = path.name.lower(), path.suffix.lower()
    if suffix in NOT_READ or name.startswith(("dockerfile", "containerfile")):
        raise ExaminationError(f"not a format that env reads ({READ})")
    if suffix in READERS:
        return READERS[suffix]
    if name == ".env" or name.startswith(".env."):
        return _env
    start = re.sub(r"^(\s*#[^\n]*\n|\s*\n)+", "", text)[:200]
    return yaml_steps if re.match(r"(services|version|name|apiVersion):", start) else shell_steps


def _env(text: str) -> Iterator[Step]:
    for number, line in enumerate(text.splitlines(), 1):
        assigned = re.match(rf"\s*(?:export\s+)?({NAME})\s*=\s*(.*)", line)
        if assigned:
            yield Assignment(assigned.group(1), plain_value(assigned.group(2)), f"line {number}")


def _job(text: str) -> Iterator[Step]:
    """Read the variables of a rocsteady.toml: how it resumes, and words before the command."""
    try:
        content = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise ExaminationError(str(error)) from None
    for table in (content, *(each for each in content.values() if isinstance(each, dict))):
        environment = table.get("environment")
        for name, value in environment.items() if isinstance(environment, dict) else ():
            yield Assignment(name, str(value), _line_of(text, name))
        command = table.get("command")
        words = shlex.split(command) if isinstance(command, str) else command
        if isinstance(words, list) and words:
            yield from segment_steps([str(word) for word in words], _line_of(text, "command"))


def _line_of(text: str, name: str) -> str:
    lines = text.splitlines()
    found = (n for n, line in enumerate(lines, 1) if line.strip().strip("\"'").startswith(name))
    return f"line {next(found, 1)}"


READERS: Mapping[str, Callable[[str], Iterator[Step]]] = MappingProxyType(
    {
        ".env": _env,
        ".sh": shell_steps,
        ".sbatch": shell_steps,
        ".toml": _job,
        ".yaml": yaml_steps,
        ".yml": yaml_steps,
    }
)
