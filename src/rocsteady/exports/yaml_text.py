r"""Writes YAML that every reader reads alike: each text is quoted, or is a block as it stands.

A text of several lines is a block where nothing in it can be misread. Everything else is in
double quotes with each special character spelt out, as in JSON, but for characters beyond \uFFFF:
there JSON has two halves, which YAML would not join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

STEP = "  "
_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_BLOCK = re.compile(r"[!-~][\t -~]*(\n[\t -~]*)+")
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def as_yaml(table: Mapping[str, object]) -> str:
    """Write a table, a line for each key."""
    return "".join(f"{line}\n" for line in _table(table))


def quoted(text: str) -> str:
    """Write a text on one line, in ASCII."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if " " <= character <= "~":
        return character
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"  # noqa: PLR2004 - digits


def _table(table: Mapping[str, object]) -> list[str]:
    lines = []
    for key, value in table.items():
        plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS
        first, *rest = _lines(value)
        lines.append(f"{key if plain else quoted(key)}:{first}")
        lines += rest
    return lines


def _lines(value: object) -> list[str]:
    """Write what follows a key: the rest of its line, and the lines below."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return ["", *(STEP + line for line in _table(value))] if value else [" {}"]
    if isinstance(value, Sequence):
        return ["", *(line for item in value for line in _item(item))] if value else [" []"]
    if isinstance(value, bool):
        return [" true" if value else " false"]
    if isinstance(value, int | float):
        return [f" {value}"]
    raise TypeError(value)


def _item(value: object) -> list[str]:
    if isinstance(value, Mapping) and value:
        first, *rest = _table(value)
        return [f"{STEP}- {first}", *(f"{STEP}{STEP}{line}" for line in rest)]
    first, *rest = _lines(value)
    return [f"{STEP}-{first}", *(STEP + line for line in rest)]


def _text(text: str) -> list[str]:
    end = text[len(text.rstrip("\n")) :]
    if not _BLOCK.fullmatch(text) or len(end) > 1:
        return [f" {quoted(text)}"]
    return [" |" if end else " |-", *(STEP + line for line in text.removesuffix("\n").split("\n"))]
