"""Which variables a file sets: shell scripts, .env, compose, Kubernetes and job files.

Nothing is executed. A file is read as its commands stand, from top to bottom; branches are not
followed. A value that only a shell could work out is None.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath

import yaml

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
    shell_value,
)
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


# Which variables compose and Kubernetes files set, for each service or container. PyYAML
# composes nodes, which know their lines; nothing is constructed.
MERGE, NULL = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:null"
Environment = dict[str, tuple[str | None, int]]  # a name to its value and line


def yaml_steps(text: str) -> Iterator[Step]:
    """Read ``environment:`` of compose files, and Kubernetes' ``env:``, of each service."""
    reader = _Reader()
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        parts = [part for document in documents for part in reader.parts(document, "")]
    except RecursionError:
        raise ExaminationError("nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ExaminationError(f"{where}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ExaminationError(str(error).splitlines()[0]) from None
    several = len({part for part, _ in parts}) > 1
    for part, environment in parts:
        for name, (value, line) in environment.items():
            known = None if value is None else shell_value(value)
            yield Assignment(name, known, f"line {line}", part=part if several else "")


class _Reader:
    """Walks the nodes of a file, each once: an alias is the node that it names."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._mappings: dict[int, dict[str, yaml.Node]] = {}

    def parts(self, node: yaml.Node | None, label: str) -> Iterator[tuple[str, Environment]]:
        """Yield what each mapping sets that has an environment, with the name of the mapping."""
        if node is None or id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                yield from self.parts(item, self._name(item, label))
        fields = self._fields(node)
        for key, child in fields.items():
            if key in ("environment", "env"):
                yield label, self._environment(child)
            elif not key.startswith("x-"):
                extended = self._extended(child, fields)
                if extended is not None:
                    yield key, self._environment(extended)
                yield from self.parts(child, self._name(child, key))

    def _fields(self, node: yaml.Node | None) -> dict[str, yaml.Node]:
        """Return a mapping by its keys, with what is merged into it; {} for other nodes."""
        if not isinstance(node, yaml.MappingNode):
            return {}
        if id(node) not in self._mappings:
            self._mappings[id(node)] = {}  # for a node that is merged into itself
            merged: dict[str, yaml.Node] = {}
            own: dict[str, yaml.Node] = {}
            for key, value in node.value:
                if key.tag == MERGE:
                    several = isinstance(value, yaml.SequenceNode)
                    for other in value.value if several else [value]:
                        merged = {**self._fields(other), **merged}
                elif isinstance(key, yaml.ScalarNode):
                    own[key.value] = value
            self._mappings[id(node)] = {**merged, **own}
        return self._mappings[id(node)]

    def _name(self, node: yaml.Node, otherwise: str) -> str:
        return _text(self._fields(node).get("name")) or otherwise

    def _extended(self, service: yaml.Node, services: dict[str, yaml.Node]) -> yaml.Node | None:
        """Return the environment of the service of the same file that this one extends."""
        extends = self._fields(service).get("extends")
        base = _text(extends) or _text(self._fields(extends).get("service"))
        return self._fields(services.get(base or "")).get("environment")

    def _environment(self, node: yaml.Node) -> Environment:
        found: Environment = {}
        for name, value in self._fields(node).items():
            if isinstance(value, yaml.ScalarNode):
                found[name] = _text(value), _line(value)
        for item in node.value if isinstance(node, yaml.SequenceNode) else ():
            fields = self._fields(item)
            if fields:  # Kubernetes
                name = _text(fields.get("name")) or ""
                found[name] = _text(fields.get("value")), _line(fields.get("value", item))
            elif text := _text(item):
                name, equals, after = text.partition("=")
                found[name] = after if equals else None, _line(item)
        return {name: value for name, value in found.items() if re.fullmatch(NAME, name)}


def _text(node: yaml.Node | None) -> str | None:
    if not isinstance(node, yaml.ScalarNode) or node.tag == NULL:
        return None
    return str(node.value)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


READERS: Mapping[str, Callable[[str], Iterator[Step]]] = {
    ".env": _env,
    ".sh": shell_steps,
    ".sbatch": shell_steps,
    ".toml": _job,
    ".yaml": yaml_steps,
    ".yml": yaml_steps,
}
