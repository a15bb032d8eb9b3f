"""Which arguments make a script continue from its own newest checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.doctor.knowledge.values import Sources
from rocsteady.model import Value

RESTARTS = "max_restarts"  # of torchrun: a script that it may restart loads its own checkpoint


class ResumeArgument(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One argument, and the values with which it names no checkpoint."""

    name: str
    values: tuple[str, ...]
    sources: Sources


def resume_argument(command: Sequence[str]) -> str:
    """Return the argument by which a command resumes on its own; "" if it has none."""
    known = {argument.name: argument.values for argument in load_arguments()}
    torchrun = any(word.endswith(("torchrun", "torch.distributed.run")) for word in command[:3])
    for name, value, text in _arguments(command):
        if value.lower() in known.get(name.rpartition(".")[2], ()):
            return text
        if name == RESTARTS and value.isdecimal() and int(value) and torchrun:
            return text
    return ""


@cache
def load_arguments(data: DataFolder | None = None) -> tuple[ResumeArgument, ...]:
    data = data or DataFolder()
    document = data.document("resume_arguments.toml", "argument")
    return data.listed(data.entries(document, "argument", ResumeArgument))


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
