"""Which arguments make a script continue from its own newest checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from rocsteady.errors import KnowledgeError
from rocsteady.knowledge.data_file import read_data
from rocsteady.model import Value

if sys.version_info >= (3, 11):
    pass
else:
    pass

FILE = Path(__file__).parent / "data" / "resume_arguments.toml"
RESTARTS = "max_restarts"  # of torchrun: a script that it may restart loads its own checkpoint


class ResumeArgument(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One argument, and the values with which it names no checkpoint."""

    name: str
    values: tuple[str, ...]
    sources: tuple[str, ...]


class _File(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    argument: tuple[ResumeArgument, ...]


def resume_argument(command: Sequence[str]) -> str:
    """Return the argument by which a command resumes on its own; "" if it has none."""
    known = {argument.name: argument.values for argument in load_arguments()}
    for name, value, text in _arguments(command):
        if value.lower() in known.get(name.rpartition(".")[2], ()):
            return text
        if name == RESTARTS and value.isdecimal() and int(value) and _is_torchrun(command):
            return text
    return ""


def _is_torchrun(command: Sequence[str]) -> bool:
    return any(word.endswith(("torchrun", "torch.distributed.run")) for word in command[:3])


@cache
def load_arguments(path: Path = FILE) -> tuple[ResumeArgument, ...]:
    """Read the file, and refuse what is wrong with it."""
    found = read_data(path, _File).argument
    for argument in found:
        if not argument.sources:
            raise KnowledgeError(f"{path.name}: {argument.name}: sources: must not be empty")
    return found


def _arguments(command: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each option or override as its name, its value, and as it is typed."""
    for at, word in enumerate(command):
        name, equals, value = word.lstrip("-+").partition("=")
        name = name.replace("-", "_").lower()
        if equals:
            yield name, value, word
        elif word.startswith("-"):
            following = command[at + 1] if at + 1 < len(command) else ""
            value = "" if following.startswith("-") else following
            yield name, value, f"{word} {value}".rstrip()
