"""Which variables a file sets: shell scripts, .env, compose, Kubernetes and job files.

Nothing is executed. A file is read as its commands stand, from top to bottom; branches are not
followed. A value that only a shell could work out is None.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from typing import NamedTuple

import yaml

from rocsteady.errors import ExaminationError
from rocsteady.toml import parse_toml

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
ASSIGNED = re.compile(rf"({NAME})=(.*)", re.DOTALL)
DEFAULT = re.compile(rf"\$\{{{NAME}:?[-=]([^${{}}]*)\}}")
QUOTED = re.compile(r"""[rub]?(['"])(.*?)\1""")
HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
SEPARATORS = frozenset({";", "&&", "||", "|", "&", "(", ")", "{", "}", "then", "do", "else"})
EXPORTING = frozenset({"export", "declare", "typeset", "readonly", "local", "env", "sudo", "exec"})
BUILTIN = re.compile(  # a first word that starts no program which would train
    r"[\[.:]+|case|cd|conda|declare|done|echo|elif|else|esac|exit|export|fi|for|function|if|local"
    r"|mkdir|module|printf|pwd|read|readonly|return|set|setenv|shift|source|test|then|trap|true"
    r"|typeset|ulimit|unset|wait|while"
)
LONGEST_COMMAND = 200  # lines of one command, such as a quoted program
JOINED = re.compile(r"""["'\\`]|\$\(""")  # a line without any of these is a whole command
SETS = re.compile(rf"(?:^|[\s,=\"']){NAME}=|\b(?:export|setenv|set|unset)\b")
TOKEN = re.compile(r"""\\.|["'`()]|\$\(|(?:^|(?<=\s))#.*""")
WORKED_OUT = "$0"  # stands for what $(...) prints


class Reach(Enum):
    """Where an assignment acts."""

    PROGRAMS = "programs"  # in every program that is started after it
    SHELL = "shell"  # in the shell alone: it is not exported
    UNSET = "unset"  # nowhere: it is unset before a program starts


class Assignment(NamedTuple):
    name: str
    value: str | None  # None: only running the file would tell
    place: str  # "line 3"; "" for the environment
    reach: Reach = Reach.PROGRAMS
    part: str = ""  # the service or container that it is set in; "" if there is one only
    until: str = ""  # the place where it is unset again
    command: str = ""  # the one command that it stands before; "" if it acts on all that follow


class Unset(NamedTuple):
    name: str
    place: str


class Exported(NamedTuple):
    name: str


class Started(NamedTuple):
    """A program that is started: it sees what was exported before."""

    name: str


Step = Assignment | Unset | Exported | Started


def shell_steps(text: str) -> Iterator[Step]:
    everything = False  # after set -a
    for number, command in commands(text):
        where = f"line {number}"
        if command.lstrip().startswith("#SBATCH"):
            yield from _exports(command.split("--export=")[1:], where)
            continue
        if not SETS.search(command):
            yield from _started(command.split(maxsplit=1)[:1])
            continue
        for words in segments(command):
            if words[0] == "set" and {"-a", "-o"} & set(words[1:2]):
                everything = words[1] == "-a" or words[2:3] == ["allexport"]
                continue
            for step in segment_steps(words, where):
                exported = isinstance(step, Assignment) and step.reach is Reach.SHELL and everything
                yield step._replace(reach=Reach.PROGRAMS) if exported else step  # type: ignore[call-arg]
            yield from _started([word for word in words if not ASSIGNED.fullmatch(word)])


def _started(words: list[str]) -> Iterator[Step]:
    if words and not BUILTIN.fullmatch(words[0]) and not words[0].startswith("#"):
        yield Started(words[0])


def commands(text: str) -> Iterator[tuple[int, str]]:
    """Yield commands with the number of their first line; continued and quoted lines are joined."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first, command = number + 1, lines[number]
        number += 1
        while number < len(lines) and number - first < LONGEST_COMMAND and _continues(command):
            command = command.removesuffix("\\") + " " * command.endswith("\\")
            command += ("" if command.endswith(" ") else "\n") + lines[number]
            number += 1
        yield first, command
        opened = HEREDOC.search(command)
        if opened:
            while number < len(lines) and lines[number].strip() != opened.group(2):
                number += 1
            number += 1


def _continues(command: str) -> bool:
    if command.endswith("\\"):
        return True
    if not JOINED.search(command):
        return False
    try:
        _without_substitutions(command)
    except ValueError:
        return True
    return False


def _without_substitutions(command: str) -> str:
    """Return a command with one word for each $(...) and `...`; ValueError if it is not whole."""
    pieces, at, quoted = [], 0, False
    while (token := TOKEN.search(command, at)) is not None:
        pieces.append(command[at : token.start()])
        at, text = token.end(), token.group()
        if text in ("$(", "`"):
            at, text = _end(command, at, text), WORKED_OUT
        elif text == "'" and not quoted:
            at = command.index("'", at) + 1
            text = command[token.start() : at]
        elif text.startswith("#") and quoted:
            at, text = token.start() + 1, "#"
        quoted ^= text == '"'
        pieces.append(text)
    if quoted:
        raise ValueError(command)
    return "".join([*pieces, command[at:]])


def _end(command: str, at: int, opening: str) -> int:
    """Return where a substitution ends that begins before ``at``."""
    if opening == "`":
        return command.index("`", at) + 1
    depth, quoted = 1, False
    while depth:
        token = TOKEN.search(command, at)
        if token is None:
            raise ValueError(opening)
        at, text = token.end(), token.group()
        if text == "'" and not quoted:
            at = command.index("'", at) + 1
        elif text == "`":
            at = command.index("`", at) + 1
        elif text in ("(", "$(", ")") and not (quoted and text == "("):
            depth += -1 if text == ")" else 1
        quoted ^= text == '"'
    return at


def segments(command: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a line."""
    try:
        command = _without_substitutions(command)
    except ValueError:  # a substitution that nothing closes
        return
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quote that nothing closes
        return
    segment: list[str] = []
    for word in [*words, ";"]:
        if word in SEPARATORS:
            if segment:
                yield segment
            segment = []
        else:
            segment.append(word)


def segment_steps(words: list[str], where: str) -> Iterator[Step]:
    head, rest = words[0], words[1:]
    if head == "unset":
        yield from (Unset(word, where) for word in rest if not word.startswith("-"))
    elif head == "setenv" and len(rest) > 1:
        yield Assignment(rest[0], shell_value(rest[1]), where)
    elif head == "set" and rest[:1] and rest[0].startswith("-") and "x" in rest[0] and rest[2:]:
        yield Assignment(rest[1], shell_value(" ".join(rest[2:])), where)  # fish
    else:
        yield from leading(words, where)
        yield from _arguments(words, where)


def _unwrapped(words: list[str]) -> list[str]:
    """Leave out what only starts another command: ``nohup``, ``timeout 5h env``."""
    wraps = next((at for at, word in enumerate(words) if word == "env"), 0)
    if wraps and not any(ASSIGNED.fullmatch(word) for word in words[:wraps]):
        words = words[wraps:]
    while words[1:] and words[0] in ("time", "nohup"):
        words = words[1:]
    return [word for word, before in zip(words, ["", *words[:-1]], strict=True) if before != "-u"]


def leading(words: list[str], where: str) -> Iterator[Step]:
    """Yield what stands before the command, or is exported."""
    words = _unwrapped(words)
    exporting = words[0] in EXPORTING
    set_here = []
    for word in words[1:] if exporting else words:
        assigned = ASSIGNED.fullmatch(word)
        if assigned:
            name, value = assigned.groups()
            set_here.append(Assignment(name, shell_value(_without_itself(name, value)), where))
        elif exporting and re.fullmatch(NAME, word) and words[0] == "export":
            yield Exported(word)
        elif not word.startswith("-"):
            command = f"{where}: {' '.join(words)}"
            set_here = [each._replace(command=command) for each in set_here]
            break
    else:
        if not exporting:  # no command follows
            set_here = [each._replace(reach=Reach.SHELL) for each in set_here]
    yield from set_here


def _without_itself(name: str, value: str) -> str:
    """Leave out what a list of folders had before: ``/opt/rocm/lib:$LD_LIBRARY_PATH``."""
    if not name.endswith("PATH"):
        return value
    return re.sub(rf"\$\{{{name}:?[-+][^{{}}]*\}}|\$\{{{name}\}}|\${name}\b", "", value)


def _arguments(words: list[str], where: str) -> Iterator[Step]:
    """Yield what docker, mpirun and srun are told to set."""
    for option, word in zip(words, [*words[1:], ""], strict=True):
        if option in ("-e", "--env", "-x") and ASSIGNED.fullmatch(word):
            yield from _exports([word], where)
        elif option.startswith(("--env=", "--export=")):
            yield from _exports([option.partition("=")[2]], where)


def _exports(lists: list[str], where: str) -> Iterator[Step]:
    for each in lists:
        for part in each.split()[0].split(",") if each.split() else ():
            assigned = ASSIGNED.fullmatch(part.strip("\"'"))
            if assigned:
                yield Assignment(assigned.group(1), shell_value(assigned.group(2)), where)


def plain_value(text: str) -> str | None:
    """Return a value without its quotes and the comment after it."""
    text = text.strip()
    quoted = QUOTED.match(text)
    return shell_value(quoted.group(2) if quoted else re.sub(r"\s+#.*", "", text))


def shell_value(text: str) -> str | None:
    """Return what a shell would make of it, where that needs no shell."""
    text = DEFAULT.sub(r"\1", text.strip().strip("\"'"))
    return None if "$" in text or "`" in text else text


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
