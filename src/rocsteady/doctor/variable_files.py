"""Which variables a file sets: scripts, images, services and notebooks. Nothing is executed.

A file is read as its commands stand, from top to bottom; branches are not followed. A value that
only a shell could work out is None.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from rocsteady.doctor.shell_variables import (
    LONGEST_COMMAND,
    NAME,
    Assignment,
    Exported,
    Reach,
    Step,
    Unset,
    commands,
    leading,
    segment_steps,
    segments,
    shell_steps,
    shell_value,
)
from rocsteady.doctor.yaml_tree import Leaf, Tree, read_yaml
from rocsteady.errors import ExaminationError
from rocsteady.toml import parse_toml

ENVIRON = re.compile(
    rf"""os\.(?:environ\[\s*(['"])(?P<item>{NAME})\1\s*\]\s*=|"""
    rf"""environ\.setdefault\(\s*(['"])(?P<default>{NAME})\3\s*,|"""
    rf"""putenv\(\s*(['"])(?P<put>{NAME})\5\s*,)\s*(?P<value>[^\n#]*)"""
)
QUOTED = re.compile(r"""[rub]?(['"])(.*?)\1""")
POWERSHELL = re.compile(rf"\$env:({NAME})\s*=\s*([^;#\n]+)", re.IGNORECASE)
SETX = re.compile(rf'^\s*@?setx?\s+(?:"({NAME})=([^"]*)"|({NAME})[= ](.*))', re.IGNORECASE)
MAGIC = re.compile(rf"^\s*%(?:set_)?env\s+({NAME})[= ]\s*(.*)")


def assignments(text: str, file: str) -> tuple[Assignment, ...]:
    """Return what is set when the file ends, in its order; the last assignment of a name counts."""
    found: dict[tuple[str, str], Assignment] = {}
    for step in KINDS[_kind(text, file)](text):
        key = (step.part if isinstance(step, Assignment) else "", step.name)
        before = found.get(key)
        if isinstance(step, Unset):
            found.pop(key, None)
        elif isinstance(step, Exported):
            if before is not None:
                found[key] = before._replace(reach=Reach.PROGRAMS)
        else:
            exported = before is not None and before.reach is Reach.PROGRAMS
            reach = Reach.PROGRAMS if exported and step.reach is Reach.SHELL else step.reach
            found.pop(key, None)
            found[key] = step._replace(reach=reach)
    lines = text.splitlines()
    return tuple(each._replace(place=_exact(each, lines)) for each in found.values())


def _exact(each: Assignment, lines: list[str]) -> str:
    """Return the line of a long command on which the name stands."""
    word, _, number = each.place.partition(" ")
    if word != "line":
        return each.place
    first = int(number)
    last = min(len(lines), first + LONGEST_COMMAND)
    found = (n for n in range(first, last + 1) if each.name in lines[n - 1])
    return f"line {next(found, first)}"


def _kind(text: str, file: str) -> str:
    """Tell the format by the file's name, else by its first words."""
    path = PurePath(file)
    name, suffix = path.name.lower(), path.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if name.startswith(("dockerfile", "containerfile")):
        return "dockerfile"
    if name == ".env" or name.startswith(".env."):
        return "env"
    start = re.sub(r"^(\s*#[^\n]*\n|\s*\n)+", "", text)[:200]
    return next((kind for pattern, kind in OPENINGS if re.match(pattern, start)), "shell")


def _env(text: str) -> Iterator[Step]:
    for number, line in enumerate(text.splitlines(), 1):
        assigned = re.match(rf"\s*(?:export\s+)?({NAME})\s*=\s*(.*)", line)
        if assigned:
            yield Assignment(assigned.group(1), _plain(assigned.group(2)), f"line {number}")


def _plain(text: str) -> str | None:
    """Return a value without its quotes and the comment after it."""
    text = text.strip()
    quoted = QUOTED.match(text)
    return shell_value(quoted.group(2) if quoted else re.sub(r"\s+#.*", "", text))


class _Stage(NamedTuple):
    name: str
    base: str
    steps: list[Step]


def _dockerfile(text: str) -> Iterator[Step]:
    """Read the variables of each stage that no other stage begins with."""
    stages: list[_Stage] = [_Stage("", "", [])]
    for number, command in commands(text):
        words = command.split(maxsplit=1)
        if words and words[0].upper() == "FROM":
            image = [word for word in command.split()[1:] if not word.startswith("--")]
            name = image[2] if len(image) > 2 else f"stage {len(stages)}"  # noqa: PLR2004 - AS
            stages.append(_Stage(name, image[0] if image else "", []))
        elif len(words) > 1 and words[0].upper() == "ENV":
            stages[-1].steps.extend(_docker_env(words[1], f"line {number}"))
    by_name = {stage.name: stage for stage in stages[1:]}
    bases = {stage.base for stage in stages}
    last = [stage for stage in stages if stage.name not in bases and (stage.name or stage.steps)]
    for stage in last:
        for step in _inherited(stage, by_name):
            told = isinstance(step, Assignment) and len(last) > 1
            yield step._replace(part=stage.name) if told else step  # type: ignore[call-arg]


def _inherited(stage: _Stage, by_name: dict[str, _Stage]) -> list[Step]:
    """Return what a stage sets, after what the stages that it begins with set."""
    found: list[Step] = []
    seen: set[str] = set()
    while stage.name not in seen:
        seen.add(stage.name)
        found = [*stage.steps, *found]
        stage = by_name.get(stage.base, stage)
    return found


def _docker_env(rest: str, where: str) -> Iterator[Step]:
    old = re.match(rf"({NAME})\s+(.*)", rest, re.DOTALL)
    if old:  # ENV NAME value
        yield Assignment(old.group(1), _plain(old.group(2)), where)
        return
    for segment in segments(rest):
        yield from leading(["env", *segment], where)


def _systemd(text: str) -> Iterator[Step]:
    for number, command in commands(text):
        words = re.match(r"\s*Environment=(.*)", command)
        if words:
            for segment in segments(words.group(1)):
                yield from leading(["env", *segment], f"line {number}")
        elif command.strip().startswith("ExecStart"):
            for segment in segments(command.partition("=")[2]):
                yield from leading(segment, f"line {number}")


def _compose(text: str) -> Iterator[Step]:
    """Read ``environment:`` of compose files, and Kubernetes' ``env:``, of each service."""
    try:
        parts = [part for document in read_yaml(text) for part in _parts(document, "", set())]
    except RecursionError:
        raise ExaminationError("nested too deeply") from None
    several = len({part for part, _ in parts}) > 1
    for part, environment in parts:
        for step in _environment(environment):
            yield step._replace(part=part) if several else step


def _parts(tree: Tree, label: str, seen: set[int]) -> Iterator[tuple[str, Tree]]:
    """Yield what each mapping sets that has an environment, with the name of the mapping."""
    if isinstance(tree, Leaf) or id(tree) in seen:
        return
    seen.add(id(tree))
    if isinstance(tree, list):
        for item in tree:
            yield from _parts(item, _named(item, label), seen)
        return
    for key, child in tree.items():
        if key in ("environment", "env"):
            yield label, child
        elif not key.startswith("x-"):
            extended = _extended(child, tree)
            if extended is not None:
                yield key, extended
            yield from _parts(child, _named(child, key), seen)


def _named(tree: Tree, otherwise: str) -> str:
    name = tree.get("name") if isinstance(tree, dict) else None
    return (name.text if isinstance(name, Leaf) else None) or otherwise


def _extended(service: Tree, services: dict[str, Tree]) -> Tree | None:
    """Return the environment of the service of the same file that this one extends."""
    extends = service.get("extends") if isinstance(service, dict) else None
    base = extends.get("service") if isinstance(extends, dict) else extends
    of = services.get(base.text or "") if isinstance(base, Leaf) else None
    return of.get("environment") if isinstance(of, dict) else None


def _environment(tree: Tree) -> Iterator[Assignment]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from _set(name, value)
    for item in tree if isinstance(tree, list) else ():
        if isinstance(item, Leaf) and item.text:
            word, equals, text = item.text.partition("=")
            yield from _set(word, Leaf(text if equals else None, item.line))
        key = item.get("name") if isinstance(item, dict) else None
        if isinstance(item, dict) and isinstance(key, Leaf):  # Kubernetes
            yield from _set(key.text or "", item.get("value", Leaf(None, key.line)))


def _set(name: str, value: Tree) -> Iterator[Assignment]:
    if re.fullmatch(NAME, name) and isinstance(value, Leaf):
        known = None if value.text is None else shell_value(value.text)
        yield Assignment(name, known, f"line {value.line}")


def _python(text: str, place: str = "line {}") -> Iterator[Step]:
    number, counted = 1, 0
    for found in ENVIRON.finditer(text):
        number += text.count("\n", counted, found.start())
        counted = found.start()
        if text[text.rfind("\n", 0, counted) + 1 : counted].lstrip().startswith("#"):
            continue
        name = found["item"] or found["default"] or found["put"]
        quoted = QUOTED.match(found["value"])
        yield Assignment(name, quoted.group(2) if quoted else None, place.format(number))


def _powershell(text: str) -> Iterator[Step]:
    for number, line in enumerate(text.splitlines(), 1):
        for found in POWERSHELL.finditer(line.partition("#")[0]):
            yield Assignment(found.group(1), _plain(found.group(2)), f"line {number}")


def _batch(text: str) -> Iterator[Step]:
    for number, line in enumerate(text.splitlines(), 1):
        found = SETX.match(line)
        if found:
            name, value = found.group(1) or found.group(3), found.group(2) or found.group(4) or ""
            yield Assignment(name, None if "%" in value else value.strip(), f"line {number}")


def _notebook(text: str) -> Iterator[Step]:
    for cell, source in enumerate(_cells(text), 1):
        place = f"cell {cell}, line {{}}"
        if source.startswith(("%%bash", "%%sh", "%%script")):
            for step in shell_steps(source.replace("%", "#", 1), place):
                yield _within_line(step) if isinstance(step, Assignment) else step
            continue
        yield from _python(source, place)
        for number, line in enumerate(source.splitlines(), 1):
            magic = MAGIC.match(line)
            if magic:
                yield Assignment(magic.group(1), _plain(magic.group(2)), place.format(number))
            elif line.lstrip().startswith("!"):
                for step in shell_steps(line.lstrip()[1:], place.format(number)):
                    yield _within_line(step) if isinstance(step, Assignment) else step


def _within_line(step: Assignment) -> Assignment:
    return step._replace(reach=Reach.LINE)


def _cells(text: str) -> Iterator[str]:
    try:
        cells = msgspec.json.decode(text, type=dict[str, Any]).get("cells", [])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ExaminationError(f"not a notebook: {error}") from None
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            yield "".join(map(str, source)) if isinstance(source, list) else str(source)


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


KINDS: Mapping[str, Callable[[str], Iterator[Step]]] = MappingProxyType(
    {
        "batch": _batch,
        "compose": _compose,
        "dockerfile": _dockerfile,
        "env": _env,
        "job": _job,
        "notebook": _notebook,
        "powershell": _powershell,
        "python": _python,
        "shell": shell_steps,
        "systemd": _systemd,
    }
)
SUFFIXES: Mapping[str, str] = MappingProxyType(
    {
        ".bat": "batch",
        ".cmd": "batch",
        ".dockerfile": "dockerfile",
        ".env": "env",
        ".ipynb": "notebook",
        ".ps1": "powershell",
        ".py": "python",
        ".service": "systemd",
        ".sh": "shell",
        ".sbatch": "shell",
        ".toml": "job",
        ".yaml": "compose",
        ".yml": "compose",
    }
)
OPENINGS = (
    (r"\[(Unit|Service|Install)\]", "systemd"),
    (r"(FROM|ARG)\s+\S+", "dockerfile"),
    (r'\{\s*"(cells|metadata|nbformat)"', "notebook"),
    (r"(services|version|name):", "compose"),
)
