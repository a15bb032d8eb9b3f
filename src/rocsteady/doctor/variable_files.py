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
from typing import Any

import msgspec

from rocsteady.doctor.dockerfile_variables import dockerfile_steps
from rocsteady.doctor.shell_variables import (
    LONGEST_COMMAND,
    NAME,
    QUOTED,
    Assignment,
    Exported,
    Reach,
    Started,
    Step,
    Unset,
    commands,
    leading,
    plain_value,
    segment_steps,
    segments,
    settled,
    shell_steps,
    shell_value,
)
from rocsteady.doctor.yaml_tree import Leaf, Tree, read_yaml
from rocsteady.errors import ExaminationError
from rocsteady.toml import parse_toml

ENVIRON = re.compile(
    rf"""\benviron(?:\[\s*(['"])(?P<item>{NAME})\1\s*\]\s*=(?!=)|"""
    rf"""\.setdefault\(\s*(['"])(?P<default>{NAME})\3\s*,)\s*(?P<value>[^\n#]*)|"""
    rf"""os\.putenv\(\s*(['"])(?P<put>{NAME})\6\s*,\s*(?P<given>[^\n#]*)|"""
    rf"""\benviron(?:\.pop\(|\[)\s*(['"])(?P<gone>{NAME})\9|"""
    r"""\benviron(?:\.update|\s*\|=\s*)(?P<many>[({])"""
)
PAIR = re.compile(
    rf"""(?:(['"])(?P<key>{NAME})\1\s*:|\b(?P<word>{NAME})\s*=)\s*(?P<value>[^,\n}}]*)"""
)
POWERSHELL = re.compile(rf"\$env:({NAME})\s*=\s*([^;#\n]+)", re.IGNORECASE)
LONGEST_CALL = 4_000  # characters of one os.environ.update(...)
BATCH = re.compile(
    rf'^@?(set|setx)\s+(?:"({NAME})=([^"]*)"|({NAME})(?:=|\s+)(.*))', re.IGNORECASE | re.DOTALL
)
TRAINS = re.compile(r"@?(?:start\s|call\s)?\S*\b(python|py|torchrun|accelerate|deepspeed)\b")
POWERSHELL_SET = re.compile(
    rf"""\[(?:System\.)?Environment\]::SetEnvironmentVariable\(\s*(['"])({NAME})\1\s*,"""
    r"""\s*([^,)]+)(,[^)]*)?\)""",
    re.IGNORECASE,
)
POWERSHELL_GONE = re.compile(rf"(?:Remove-Item|rm|del)\s.{0, 99}?Env:\\?({NAME})", re.IGNORECASE)
MAGIC = re.compile(rf"^\s*%(?:set_)?env\s+({NAME})[= ]\s*(.*)")


def assignments(text: str, file: str) -> tuple[Assignment, ...]:
    """Return what a file sets, in its order; the last assignment of a name counts.

    What is unset again acts if a program was started before.
    """
    found: dict[tuple[str, str, str], Assignment] = {}
    seen: set[tuple[str, str, str]] = set()  # by a program that the file starts
    for step in KINDS[_kind(text, file)](text):
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
            if exported and step.reach in (Reach.LINE, Reach.LAYER):
                continue  # it ends, and the one before goes on
            reach = Reach.PROGRAMS if exported and step.reach is Reach.SHELL else step.reach
            found.pop(key, None)
            seen.discard(key)
            found[key] = step._replace(reach=reach)
    lines = text.splitlines()
    return tuple(
        each._replace(place=_exact(each, lines), reach=_reach(each, started=key in seen))
        for key, each in found.items()
    )


def _reach(each: Assignment, *, started: bool) -> Reach:
    """Return where it acts; what is for later windows is lost only on what starts before them."""
    return Reach.PROGRAMS if each.reach is Reach.LATER and not started else each.reach


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
            yield Assignment(assigned.group(1), plain_value(assigned.group(2)), f"line {number}")


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
        where = place.format(number)
        if text[text.rfind("\n", 0, counted) + 1 : counted].lstrip().startswith("#"):
            continue
        if found["many"]:
            many = _bracketed(text, found.end())
            for pair in PAIR.finditer(many):
                below = number + many.count("\n", 0, pair.start("value"))
                yield _assigned(pair["key"] or pair["word"], pair["value"], place.format(below))
        elif found["gone"]:
            yield from _removed(text, found, where)
        else:
            name = found["item"] or found["default"] or found["put"]
            yield _assigned(name, found["value"] or found["given"] or "", where)


def _bracketed(text: str, at: int) -> str:
    """Return what stands between a bracket that ends before ``at`` and the one that closes it."""
    depth = 1
    for mark in re.finditer(r"[()\[\]{}]", text[at : at + LONGEST_CALL]):
        depth += 1 if mark.group() in "([{" else -1
        if not depth:
            return text[at : at + mark.start()]
    return ""


def _assigned(name: str, value: str, where: str) -> Assignment:
    quoted = QUOTED.match(value)
    return Assignment(name, quoted.group(2) if quoted else None, where)


def _removed(text: str, found: re.Match[str], where: str) -> Iterator[Step]:
    """Yield what pop and del remove; other mentions only read."""
    line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()].lstrip()
    if ".pop(" in found.group() or line.startswith("del "):
        yield Unset(found["gone"], where)


def _powershell(text: str) -> Iterator[Step]:
    for number, line in enumerate(text.splitlines(), 1):
        where, code = f"line {number}", line.partition("#")[0]
        for found in POWERSHELL.finditer(code):
            null = found.group(2).strip().lower() == "$null"
            value = plain_value(found.group(2))
            yield Unset(found.group(1), where) if null else Assignment(found[1], value, where)
        for found in POWERSHELL_SET.finditer(code):
            reach = (
                Reach.LATER if found[4] and "process" not in found[4].lower() else Reach.PROGRAMS
            )
            yield Assignment(found[2], plain_value(found[3]), where, reach)
        for found in POWERSHELL_GONE.finditer(code):
            yield Unset(found[1], where)
        yield from _batch_line(code, where) if code.lower().lstrip().startswith("setx ") else ()
        yield from (Started(found.group(1)) for found in [TRAINS.match(code.strip())] if found)


def _batch(text: str) -> Iterator[Step]:
    for number, line in enumerate(text.splitlines(), 1):
        for part in re.split(r"&+", line):
            yield from _batch_line(part, f"line {number}")


def _batch_line(part: str, where: str) -> Iterator[Step]:
    found = BATCH.match(part.lstrip())
    if found is None:
        yield from (Started(each.group(1)) for each in [TRAINS.match(part.strip())] if each)
        return
    name, value = found.group(2) or found.group(4), found.group(3) or found.group(5) or ""
    later = found.group(1).lower() == "setx"
    if later:
        value = re.sub(r"\s/[mM]\s*$", "", value).strip().strip('"')
    if not value.strip() and not later:
        yield Unset(name, where)
        return
    reach = Reach.LATER if later else Reach.PROGRAMS
    yield Assignment(name, None if "%" in value else value.strip(), where, reach)


def _notebook(text: str) -> Iterator[Step]:
    for cell, source in enumerate(_cells(text), 1):
        place = f"cell {cell}, line {{}}"
        if source.startswith(("%%bash", "%%sh", "%%script")):
            yield from settled(shell_steps(source.replace("%", "#", 1), place), Reach.LINE)
            continue
        yield from _python(source, place)
        for number, line in enumerate(source.splitlines(), 1):
            magic = MAGIC.match(line)
            if magic:
                yield Assignment(magic.group(1), plain_value(magic.group(2)), place.format(number))
            elif line.lstrip().startswith("!"):
                yield from settled(shell_steps(line.lstrip()[1:], place.format(number)), Reach.LINE)


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
        "dockerfile": dockerfile_steps,
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
