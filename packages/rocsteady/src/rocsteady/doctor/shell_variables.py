"""Which variables a shell script sets, exports and unsets. Nothing is executed.

A value that only a shell could work out is None; branches are not followed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

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
