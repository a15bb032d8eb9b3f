"""Which variables a text file sets: one search for assignments, whatever the format.

Nothing is executed and no branch is followed. A value that only a shell could work out is None.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import NamedTuple

NAME = r"(?P<name>[A-Z][A-Z0-9_]+)\b"
QUOTE = r"""\\?["']"""  # in JSON a backslash stands before it
# Lengths are limited so that a file made for it does not take hours.
VALUE = (
    rf"(?:(?P<quote>{QUOTE})(?P<quoted>.{{0,4000}}?)(?P=quote)|(?P<bare>(?:"
    r"\$\{[^}\n]{0,200}\}|\$\([^)\n]{0,200}\)|`[^`\n]{0,200}`"  # one word for a shell
    r"|\\(?!n?[\"'])|,(?!\s|\w+=)|[^\s;&|\"'`,)\]}\\*])*))"
)
FORMS = [
    re.compile(form)
    for form in (
        rf"(?<![\w$.])(?<!\$\{{){NAME}(?:=(?!=)|\s=\s|{QUOTE}\]\s*=(?!=)\s*){VALUE}",
        rf"(?:^\s*(?:-\s+)?|[{{,]\s*)(?:{QUOTE})?{NAME}(?:{QUOTE})?:(?:\s+|$){VALUE}",  # a mapping
        rf"(?:^\s*ENV|\bsetenv|\bsetx|\bset\s+-\w*x\w*)\s+{NAME}\s+(?!=){VALUE}",
        rf"(?:setdefault|putenv|setenv)\(\s*{QUOTE}{NAME}{QUOTE},\s*{VALUE}",
        rf"\bname:\s*(?:{QUOTE})?{NAME}(?:{QUOTE})?(?:[\s,]+value:\s*{VALUE})?",  # Kubernetes
    )
]
LEFT_OUT = re.compile(  # comments, except those that Slurm and PBS read, and what is only printed
    r"(?:^|(?<=\s))(?!#SBATCH|#PBS)#.*|^[ \t]*(?:echo|printf|rem|REM|//).*", re.MULTILINE
)
CONTINUED = re.compile(r"\\\n|\n(?=[ \t]*value:)")
BREAK = "\v"  # stands for the end of a line that goes on
SCRIPTS = (".bash", ".sbatch", ".sh", ".slurm", ".zsh")
EXPORT = re.compile(r"\bexport\b(.*)|#SBATCH|#PBS")
EXPORTS_ALL = re.compile(r"\bset\s+-(?:a|o\s+allexport)\b")
ENVIRONMENT = re.compile(r"\s*(?:-\s+)?(?:environment|env):")
DEFAULT = re.compile(r"\$\{\w+:?[-=]([^${}]*)\}")


class Assignment(NamedTuple):
    name: str
    value: str | None  # None: only running the file would tell
    place: str  # "line 3"; "" for the environment
    exported: bool = True  # otherwise the programs that a script starts do not see it
    block: int = 0  # the line of the one command or service that sees it; 0 if all do


def assignments(text: str, file: str) -> tuple[Assignment, ...]:
    """Return what a file sets, in its order; the last assignment of a name in a block counts."""
    script = text.startswith("#!") or PurePath(file).suffix in SCRIPTS
    text = CONTINUED.sub(BREAK, LEFT_OUT.sub("", text))
    exported = set(re.findall(r"\w+", " ".join(found[1] or "" for found in EXPORT.finditer(text))))
    everything = EXPORTS_ALL.search(text) is not None
    found: dict[tuple[int, str], Assignment] = {}
    line, environment = 1, 0
    for command in text.split("\n"):
        first, at = line, 0
        environment = line if ENVIRONMENT.match(command) else environment
        matches = sorted(
            (each for form in FORMS for each in form.finditer(command)), key=re.Match.end
        )
        alone = script and not FORMS[0].sub("", command).strip(f"; {BREAK}")
        block = environment
        if script:
            block = 0 if alone or EXPORT.search(command) else first
        for match in matches:
            line += command.count(BREAK, at, match.end())
            at, name = match.end(), match["name"]
            seen = not alone or everything or name in exported
            found.pop((block, name), None)
            found[block, name] = Assignment(name, _value(match), f"line {line}", seen, block)
        line += command.count(BREAK, at) + 1
    return tuple(found.values())


def _value(match: re.Match[str]) -> str | None:
    """Return the value as a shell would make it, where that needs no shell."""
    value = match["quoted"]
    if value is None:
        value = match["bare"]
        if not value and ("=" not in match[0] or match.string[match.end() :][:1] in ("'", '"')):
            return None  # of the environment around it, or on the lines that follow
    if match["name"].endswith("PATH"):  # a list of folders keeps what it had
        own = match["name"]
        value = re.sub(rf"\$\{{{own}:?[-+][^{{}}]*\}}|\$\{{{own}\}}|\${own}\b", "", value)
    value = DEFAULT.sub(r"\1", value)
    return None if "$" in value or "`" in value else value
