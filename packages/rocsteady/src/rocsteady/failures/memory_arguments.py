"""Which arguments of a command could be lowered, so that the script needs less memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rocsteady.model import FailureKind

# By how much they usually save, the most first; names as scripts and configuration tools have them.
_OF_THE_DEVICE = (
    r"(?:\w*_)?(?:micro_)?batch(?:_?size)?(?:_per_\w+)?|bs|b",
    r"(?:\w*_)?(?:max_)?seq(?:uence)?_?len(?:gth)?|(?:max_)?(?:context|block)_?(?:size|len|length)",
    r"(?:max_)?length|max_tokens",
    r"im(?:a?ge?)?_?(?:size|sz)|resolution|crop_?size|input_?size|height|width",
    r"hidden(?:_?size|_?dim|_?layers)?|embed\w*|d_model|n?_?layers?|num_layers|heads|n_heads",
)
_OF_THE_HOST = (
    r"(?:\w*_)?(?:num_|n_)?workers|j",
    r"prefetch(?:_?factor)?",
    r"chunk_?size|buffer_?size|cache\w*|data_fraction",
    *_OF_THE_DEVICE[:1],
)
_NAMED = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)=(?P<value>\d+)")
_NAME = re.compile(r"-{1,2}[A-Za-z][\w.-]*")


def memory_arguments(command: Sequence[str], kind: str) -> tuple[tuple[str, int], ...]:
    """Return names and values, those that usually save the most first."""
    families = _OF_THE_HOST if kind == FailureKind.OOM_HOST else _OF_THE_DEVICE
    given = list(_given(command))
    found = [
        (name, value)
        for family in families
        for name, value in given
        if value > 1 and re.fullmatch(family, _plain(name))
    ]
    return tuple(dict.fromkeys(found))


def accumulation_argument(command: Sequence[str]) -> tuple[str, int] | None:
    """Return the argument that says over how many batches gradients are added up."""
    return next((it for it in _given(command) if "accum" in _plain(it[0])), None)


def _given(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield arguments with a number: ``--name 8``, ``--name=8``, ``name=8``, ``-b 8``."""
    for word, following in zip(command, (*command[1:], ""), strict=True):
        if found := _NAMED.fullmatch(word):
            yield found["name"], int(found["value"])
        elif _NAME.fullmatch(word) and following.isdecimal():
            yield word, int(following)


def _plain(name: str) -> str:
    """Return the last part of a name, as Python would spell it."""
    return name.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
