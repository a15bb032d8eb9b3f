"""A command with other arguments: each takes the place of the one that the command has."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rocsteady.untrusted_file import read_head

_OPTION = re.compile(r"-[^0-9.].*", re.DOTALL)  # -1e-4 is a value
_ASSIGNED = re.compile(r"[A-Za-z_+~][^=\s]*=.*", re.DOTALL)  # model.size=128
_SCRIPT = ".py"
SCRIPT_LIMIT = 1 << 20  # bytes
_SEED = re.compile(r"((?:--)?(?:[a-z.]+[-_.])?seed)(?:=.*)?")
_SEED_TEXT = re.compile(rb"""["'](--(?:[a-z]+[-_])?seed)["']""")


def with_arguments(
    command: Sequence[str], arguments: Sequence[str], without: Sequence[str] = ()
) -> tuple[str, ...]:
    """Take words out of a command and put others in; raises ValueError where that is not clear."""
    words = list(command)
    for group in _groups(without):
        _take_out(words, group)
    for group in _groups(arguments):
        _put_in(words, group)
    return tuple(words)


def seed_option(command: Sequence[str], folder: Path) -> str:
    """Return the option that sets the seed: as the command has it, or the script; "" if neither."""
    for word in command:
        if match := _SEED.fullmatch(word):
            return match.group(1)
    for word in command:
        path = folder / word
        if path.suffix == _SCRIPT and path.is_file():
            with contextlib.suppress(OSError):
                if found := _SEED_TEXT.search(read_head(path, SCRIPT_LIMIT)):
                    return found.group(1).decode()
    return ""


def _groups(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield each option with the values that follow it, and each ``key=value``."""
    group: list[str] = []
    for word in words:
        is_value = group and _OPTION.fullmatch(group[0]) and "=" not in group[0]
        if _ASSIGNED.fullmatch(word):
            is_value = is_value and len(group) == 1
        if group and (_OPTION.fullmatch(word) or not is_value):
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _place(words: Sequence[str], key: str) -> int | None:
    """Return where an option or a key stands last: that one counts."""
    found = [at for at, word in enumerate(words) if word == key or word.startswith(f"{key}=")]
    return found[-1] if found else None


def _put_in(words: list[str], group: list[str]) -> None:
    key, joined, _ = group[0].partition("=")
    named = _OPTION.fullmatch(key) or joined
    at = _place(words, key) if named else None
    if at is None:
        words += group
    elif joined or len(group) > 1:
        values = 1 if joined else len(group) - 1
        words[at : at + 1 + _values(words, at, at_most=values)] = group


def _values(words: Sequence[str], at: int, *, at_most: int) -> int:
    """Count the words that are an option's values: those up to the next option or the script."""
    if not _OPTION.fullmatch(words[at]) or "=" in words[at]:
        return 0
    rest = words[at + 1 :]
    ends = (n for n, word in enumerate(rest) if _OPTION.fullmatch(word) or word.endswith(_SCRIPT))
    count = next(ends, len(rest))
    if count > at_most:
        raise ValueError(
            f"{words[at]} is followed by {count} words in the command and {at_most} here, so"
            f" its values are ambiguous. Write {words[at]}=VALUE in the command"
        )
    return count


def _take_out(words: list[str], group: list[str]) -> None:
    """Take out words as they stand, or an option that is written with its value in one word."""
    size = len(group)
    for at in range(len(words) - size + 1):
        same = words[at : at + size] == group
        if same or (size == 1 and words[at].startswith(f"{group[0]}=")):
            del words[at : at + size]
            return
    raise ValueError(f"the command has no {shlex.join(group)}")
